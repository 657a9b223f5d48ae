"""Claims that account for the devices of pods that get their GPUs through the device plugin."""
