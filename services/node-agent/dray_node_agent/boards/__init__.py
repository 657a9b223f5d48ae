"""Where cards are read from: real ones through NVML, or simulated ones."""
