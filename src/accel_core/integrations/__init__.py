"""Frameworks that run on accel_core's accelerator: one module each, none imported unless asked for."""
