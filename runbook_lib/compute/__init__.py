"""Image builds, commands inside the image, jobs on Slurm, internal CI."""
