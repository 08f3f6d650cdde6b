"""One module or folder per notebook."""
