"""The forms that JupyterLab shows."""
