"""Tag families other than NGC PyTorch."""
