"""The tokens that the practice world takes; they are good for nothing anywhere else."""

TOKEN = "practice-token"
#: What the practice GitLab takes; it is served below the forge's address.
GITLAB_TOKEN = "practice-gitlab-token"
