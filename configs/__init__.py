"""YAML defaults and experiments; the typed schemas behind them live beside the classes that they configure."""
