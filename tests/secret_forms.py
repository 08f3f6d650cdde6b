"""Secrets of all usual kinds, made up: none was ever issued, and nobody who scans this repository finds one."""

import random
import re
import string
import textwrap

_LETTERS = {
    "": string.ascii_letters + string.digits, "hex": "0123456789abcdef",
    "lower": string.ascii_lowercase + string.digits, "upper": string.ascii_uppercase + string.digits,
    "age": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
}  # fmt: skip
#: By form: where it is described (a rule of gitleaks unless it is an address), and a token, with letters to be drawn.
FORMS = {
    "GitHub, personal": ("github-pat", "ghp_<36>"),
    "GitHub, OAuth": ("github-oauth", "gho_<36>"),
    "GitHub, app to user": ("github-app-token", "ghu_<36>"),
    "GitHub, app": ("github-app-token", "ghs_<36>"),
    "GitHub, refresh": ("github-refresh-token", "ghr_<76>"),
    "GitHub, fine-grained": ("github-fine-grained-pat", "github_pat_<22>_<59>"),
    "GitLab, personal": ("gitlab-pat", "glpat-<20>"),
    "GitLab, personal, routable": ("gitlab-pat-routable", "glpat-<27>.<9 lower>"),
    "GitLab, runner": ("gitlab-runner-authentication-token", "glrt-<20>"),
    "GitLab, runner, old": ("gitlab-rrt", "GR1348941<20>"),
    "GitLab, deploy": ("gitlab-deploy-token", "gldt-<20>"),
    "GitLab, job": ("gitlab-cicd-job-token", "glcbt-1a_<20>"),
    "GitLab, trigger": ("gitlab-ptt", "glptt-<40 hex>"),
    "GitLab, feed": ("gitlab-feed-token", "glft-<20>"),
    "GitLab, SCIM": ("gitlab-scim-token", "glsoat-<20>"),
    "GitLab, agent": ("gitlab-kubernetes-agent-token", "glagent-<50>"),
    "GitLab, OAuth": ("gitlab-oauth-app-secret", "gloas-<64>"),
    "GitLab, mail": ("gitlab-incoming-mail-token", "glimt-<25>"),
    "GitLab, flags": ("gitlab-feature-flag-client-token", "glffct-<20>"),
    "Bitbucket": ("https://support.atlassian.com/bitbucket-cloud/docs/app-passwords", "ATBB<32>"),
    "Atlassian": ("atlassian-api-token", "ATATT3<186>"),
    "npm": ("npm-access-token", "npm_<36>"),
    "PyPI": ("pypi-upload-token", "pypi-AgEIcHlwaS5vcmc<60>"),
    "RubyGems": ("rubygems-api-token", "rubygems_<48 hex>"),
    "Artifactory": ("artifactory-api-key", "AKCp<69>"),
    "Buildkite": ("https://buildkite.com/docs/apis/managing-api-tokens", "bkua_<40 hex>"),
    "Docker Hub": ("https://docs.docker.com/security/access-tokens", "dckr_pat_<27>"),
    "Docker Hub, organization": ("https://docs.docker.com/security/access-tokens", "dckr_oat_<32>"),
    "Sourcegraph": ("sourcegraph-access-token", "sgp_<40 hex>"),
    "CircleCI": ("https://circleci.com/docs/managing-api-tokens", "CCIPAT_<22>_<40 hex>"),
    "SonarQube": ("sonar-api-token", "sqp_<40 hex>"),
    "NVIDIA": ("https://docs.nvidia.com/ngc/latest/ngc-user-guide.html", "nvapi-<64>"),
    "Hugging Face": ("huggingface-access-token", "hf_<34>"),
    "Hugging Face, organization": ("huggingface-organization-api-token", "api_org_<34>"),
    "OpenAI": ("openai-api-key", "sk-<20>T3BlbkFJ<20>"),
    "OpenAI, project": ("openai-api-key", "sk-proj-<74>T3BlbkFJ<74>"),
    "OpenAI, service": ("openai-api-key", "sk-svcacct-<74>"),
    "Anthropic": ("anthropic-api-key", "sk-ant-api03-<93>AA"),
    "Anthropic, admin": ("anthropic-admin-api-key", "sk-ant-admin01-<93>AA"),
    "OpenRouter": ("https://openrouter.ai/docs/api-reference/authentication", "sk-or-v1-<64 hex>"),
    "Groq": ("https://console.groq.com/docs", "gsk_<52>"),
    "xAI": ("https://docs.x.ai", "xai-<80>"),
    "Perplexity": ("perplexity-api-key", "pplx-<48>"),
    "Replicate": ("https://replicate.com/docs/reference/http", "r8_<37>"),
    "LangSmith": ("https://docs.smith.langchain.com", "lsv2_pt_<32 hex>_<10 hex>"),
    "Weights & Biases": ("https://docs.wandb.ai", "wandb_v1_<60>"),
    "Databricks": ("databricks-api-token", "dapi<32 hex>"),
    "Grafana": ("grafana-service-account-token", "glsa_<32>_<8 hex>"),
    "Grafana, cloud": ("grafana-cloud-api-token", "glc_<60>"),
    "New Relic": ("new-relic-user-api-key", "NRAK-<27 upper>"),
    "Sentry": ("sentry-user-token", "sntryu_<64 hex>"),
    "AWS": ("aws-access-token", "AKIA<16 upper>"),
    "AWS, temporary": ("aws-access-token", "ASIA<16 upper>"),
    "AWS Bedrock": ("aws-amazon-bedrock-api-key-long-lived", "ABSK<120>"),
    "Google": ("gcp-api-key", "AIza<35>"),
    "Google, OAuth": ("https://developers.google.com/identity/protocols/oauth2", "ya29.<60>"),
    "Alibaba": ("alibaba-access-key-id", "LTAI<20>"),
    "DigitalOcean": ("digitalocean-pat", "dop_v1_<64 hex>"),
    "DigitalOcean, OAuth": ("digitalocean-access-token", "doo_v1_<64 hex>"),
    "Cloudflare": ("cloudflare-origin-ca-key", "v1.0-<24 hex>-<146 hex>"),
    "Heroku": ("heroku-api-key-v2", "HRKU-AA<58>"),
    "PlanetScale": ("planetscale-api-token", "pscale_tkn_<43>"),
    "Tailscale": ("https://tailscale.com/kb/1277/key-prefixes", "tskey-auth-<12>-<30>"),
    "OpenShift": ("openshift-user-token", "sha256~<43>"),
    "Vault": ("vault-service-token", "hvs.<90>"),
    "Vault, batch": ("vault-batch-token", "hvb.<140>"),
    "Terraform": ("hashicorp-tf-api-token", "<14>.atlasv1.<67>"),
    "Pulumi": ("pulumi-api-token", "pul-<40 hex>"),
    "Slack, bot": ("slack-bot-token", "xoxb-123456789012-<24>"),
    "Slack, user": ("slack-user-token", "xoxp-123456789012-<32>"),
    "Slack, app": ("slack-app-token", "xapp-1-<11 upper>-<64 lower>"),
    "Stripe": ("stripe-access-token", "sk_live_<24>"),
    "Stripe, restricted": ("stripe-access-token", "rk_test_<24>"),
    "Stripe, webhook": ("https://docs.stripe.com/webhooks", "whsec_<32>"),
    "SendGrid": ("sendgrid-api-token", "SG.<22>.<43>"),
    "age": ("age-secret-key", "AGE-SECRET-KEY-1<58 age>"),
    "JSON web token": ("jwt", "eyJ<33>.eyJ<60>.<43>"),
    "JSON web token without a signature": ("jwt", "eyJ<33>.eyJ<60>."),
    "JSON web token, encrypted": ("https://www.rfc-editor.org/rfc/rfc7516", "eyJ<30>..<16>.<40>.<22>"),
}


def drawn(form: str, draw: random.Random) -> str:
    """A token of this form: for ``<20>`` and ``<40 hex>`` so many letters, with a digit and a letter first."""

    def letters(found: re.Match[str]) -> str:
        kind = found[2] or ""
        return ("7A" if kind == "upper" else "7a") + "".join(draw.choices(_LETTERS[kind], k=int(found[1]) - 2))

    return re.sub(r"<(\d+)(?: (\w+))?>", letters, form)


def pem(kind: str, draw: random.Random) -> str:
    """A private key as OpenSSL writes it."""
    body = textwrap.fill(drawn("<222>", draw), 64)
    return f"-----BEGIN {kind}-----\n{body}==\n-----END {kind}-----\n"
