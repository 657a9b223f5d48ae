"""Claims of pods that get their GPUs through the device plugin: they account for the devices."""
