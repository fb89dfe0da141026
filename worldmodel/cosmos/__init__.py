"""Cosmos-Predict2.5, a 2B video diffusion model, conditioned on actions; needs the extra `diffusion`."""
