"""Correction devices: each turns a person's hands, or a script, into TeleopCommands."""
