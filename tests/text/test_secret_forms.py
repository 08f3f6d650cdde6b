"""The forms of secrets: each is found where it stands, and nothing that CI prints is taken for one.

The secrets are put together here, so that nobody who scans this repository finds one.
"""

# A row of a table stays on its line.
# ruff: noqa: E501, UP031

import base64
import random
import string

import pytest

from runbook_lib.text.redact import Redactor

_RANDOM = random.Random(16)
_HEX, _LOW, _UP = "0123456789abcdef", string.ascii_lowercase + string.digits, string.ascii_uppercase + string.digits
_ANY = string.ascii_letters + string.digits


def some(length: int, characters: str = _ANY) -> str:
    """So many characters, with a digit and a letter among the first."""
    return ("7f" if characters == _HEX else "7A" if characters == _UP else "7a") + "".join(
        _RANDOM.choice(characters) for _ in range(length - 2)
    )


def joined(*parts: str) -> str:
    return "".join(parts)


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


_UUID = f"{some(8, _HEX)}-{some(4, _HEX)}-{some(4, _HEX)}-{some(4, _HEX)}-{some(12, _HEX)}"
_PEM_BODY = "\n".join(some(64) for _ in range(3)) + f"\n{some(30)}==\n"


def pem(kind: str) -> str:
    return f"-----BEGIN {kind}-----\n{_PEM_BODY}-----END {kind}-----\n"


#: By form: where it is described (a rule of gitleaks unless it is an address), and a token.
TOKENS = {
    "GitHub, personal": ("github-pat", joined("ghp", "_", some(36))),
    "GitHub, OAuth": ("github-oauth", joined("gho", "_", some(36))),
    "GitHub, app to user": ("github-app-token", joined("ghu", "_", some(36))),
    "GitHub, app": ("github-app-token", joined("ghs", "_", some(36))),
    "GitHub, refresh": ("github-refresh-token", joined("ghr", "_", some(76))),
    "GitHub, fine-grained": ("github-fine-grained-pat", joined("github_pat", "_", some(22), "_", some(59))),
    "GitLab, personal": ("gitlab-pat", joined("glpat", "-", some(20))),
    "GitLab, personal, routable": ("gitlab-pat-routable", joined("glpat", "-", some(27), ".", some(9, _LOW))),
    "GitLab, runner": ("gitlab-runner-authentication-token", joined("glrt", "-", some(20))),
    "GitLab, runner, old": ("gitlab-rrt", joined("GR", "1348941", some(20))),
    "GitLab, deploy": ("gitlab-deploy-token", joined("gldt", "-", some(20))),
    "GitLab, job": ("gitlab-cicd-job-token", joined("glcbt", "-", "1a_", some(20))),
    "GitLab, trigger": ("gitlab-ptt", joined("glptt", "-", some(40, _HEX))),
    "GitLab, feed": ("gitlab-feed-token", joined("glft", "-", some(20))),
    "GitLab, SCIM": ("gitlab-scim-token", joined("glsoat", "-", some(20))),
    "GitLab, agent": ("gitlab-kubernetes-agent-token", joined("glagent", "-", some(50))),
    "GitLab, OAuth": ("gitlab-oauth-app-secret", joined("gloas", "-", some(64))),
    "GitLab, mail": ("gitlab-incoming-mail-token", joined("glimt", "-", some(25))),
    "GitLab, flags": ("gitlab-feature-flag-client-token", joined("glffct", "-", some(20))),
    "Bitbucket": ("https://support.atlassian.com/bitbucket-cloud/docs/app-passwords", joined("AT", "BB", some(32))),
    "Atlassian": ("atlassian-api-token", joined("ATA", "TT3", some(186))),
    "npm": ("npm-access-token", joined("npm", "_", some(36))),
    "PyPI": ("pypi-upload-token", joined("pypi", "-AgEIcHlwaS5vcmc", some(60))),
    "RubyGems": ("rubygems-api-token", joined("rubygems", "_", some(48, _HEX))),
    "NuGet": ("https://github.com/microsoft/sarif-pattern-matcher", joined("oy", "2", some(43, _LOW))),
    "Clojars": ("clojars-api-token", joined("CLOJARS", "_", some(60, _LOW))),
    "Docker Hub": ("https://docs.docker.com/security/access-tokens", joined("dckr", "_pat_", some(27))),
    "Docker Hub, organization": ("https://docs.docker.com/security/access-tokens", joined("dckr", "_oat_", some(32))),
    "Artifactory": ("artifactory-api-key", joined("AK", "Cp", some(69))),
    "Sourcegraph": ("sourcegraph-access-token", joined("sgp", "_", some(40, _HEX))),
    "Buildkite": ("https://buildkite.com/docs/apis/managing-api-tokens", joined("bkua", "_", some(40, _HEX))),
    "CircleCI": ("https://circleci.com/docs/managing-api-tokens", joined("CCI", "PAT_", some(22), "_", some(40, _HEX))),
    "SonarQube": ("sonar-api-token", joined("sq", "p_", some(40, _HEX))),
    "NVIDIA": ("https://docs.nvidia.com/ngc/latest/ngc-user-guide.html", joined("nvapi", "-", some(64))),
    "Hugging Face": ("huggingface-access-token", joined("hf", "_", some(34))),
    "Hugging Face, organization": ("huggingface-organization-api-token", joined("api", "_org_", some(34))),
    "OpenAI": ("openai-api-key", joined("sk", "-", some(20), "T3BlbkFJ", some(20))),
    "OpenAI, project": ("openai-api-key", joined("sk", "-proj-", some(74), "T3BlbkFJ", some(74))),
    "OpenAI, service": ("openai-api-key", joined("sk", "-svcacct-", some(74))),
    "Anthropic": ("anthropic-api-key", joined("sk", "-ant-api03-", some(93), "AA")),
    "Anthropic, admin": ("anthropic-admin-api-key", joined("sk", "-ant-admin01-", some(93), "AA")),
    "OpenRouter": ("https://openrouter.ai/docs/api-reference/authentication", joined("sk", "-or-v1-", some(64, _HEX))),
    "Groq": ("https://console.groq.com/docs", joined("gsk", "_", some(52))),
    "xAI": ("https://docs.x.ai", joined("xai", "-", some(80))),
    "Perplexity": ("perplexity-api-key", joined("pplx", "-", some(48))),
    "Replicate": ("https://replicate.com/docs/reference/http", joined("r", "8_", some(37))),
    "LangSmith": ("https://docs.smith.langchain.com", joined("lsv2", "_pt_", some(32, _HEX), "_", some(10, _HEX))),
    "Weights & Biases": ("https://docs.wandb.ai", joined("wandb", "_v1_", some(60))),
    "Databricks": ("databricks-api-token", joined("da", "pi", some(32, _HEX))),
    "Grafana": ("grafana-service-account-token", joined("gl", "sa_", some(32), "_", some(8, _HEX))),
    "Grafana, cloud": ("grafana-cloud-api-token", joined("gl", "c_", some(60))),
    "New Relic": ("new-relic-user-api-key", joined("NR", "AK-", some(27, _UP))),
    "Sentry": ("sentry-user-token", joined("sntry", "u_", some(64, _HEX))),
    "Dynatrace": ("dynatrace-api-token", joined("dt0", "c01.", some(24, _UP), ".", some(64, _UP))),
    "AWS": ("aws-access-token", joined("AK", "IA", some(16, _UP))),
    "AWS, temporary": ("aws-access-token", joined("AS", "IA", some(16, _UP))),
    "AWS Bedrock": ("aws-amazon-bedrock-api-key-long-lived", joined("AB", "SK", some(120))),
    "Google": ("gcp-api-key", joined("AI", "za", some(35))),
    "Google, OAuth": ("https://developers.google.com/identity/protocols/oauth2", joined("ya", "29.", some(60))),
    "Google, client": ("https://developers.google.com/identity/protocols/oauth2", joined("GOC", "SPX-", some(28))),
    "Azure AD": ("azure-ad-client-secret", joined(some(3), "8Q", "~", some(34))),
    "Azure, identifiable": ("https://github.com/microsoft/security-utilities", joined(some(52), "JQQJ", "99", some(26))),
    "Alibaba": ("alibaba-access-key-id", joined("LT", "AI", some(20))),
    "DigitalOcean": ("digitalocean-pat", joined("dop", "_v1_", some(64, _HEX))),
    "DigitalOcean, OAuth": ("digitalocean-access-token", joined("doo", "_v1_", some(64, _HEX))),
    "Cloudflare": ("cloudflare-origin-ca-key", joined("v1", ".0-", some(24, _HEX), "-", some(146, _HEX))),
    "Fly.io": ("flyio-access-token", joined("fo", "1_", some(43))),
    "Heroku": ("heroku-api-key-v2", joined("HR", "KU-AA", some(58))),
    "PlanetScale": ("planetscale-api-token", joined("pscale", "_tkn_", some(43))),
    "Tailscale": ("https://tailscale.com/kb/1277/key-prefixes", joined("tskey", "-auth-", some(12), "-", some(30))),
    "OpenShift": ("openshift-user-token", joined("sha256", "~", some(43))),
    "Vault": ("vault-service-token", joined("hv", "s.", some(90))),
    "Vault, batch": ("vault-batch-token", joined("hv", "b.", some(140))),
    "Terraform Cloud": ("hashicorp-tf-api-token", joined(some(14), ".atlas", "v1.", some(67))),
    "Pulumi": ("pulumi-api-token", joined("pul", "-", some(40, _HEX))),
    "Doppler": ("doppler-api-token", joined("dp", ".pt.", some(43))),
    "Slack, bot": ("slack-bot-token", joined("xox", "b-", "123456789012-", some(24))),
    "Slack, user": ("slack-user-token", joined("xox", "p-", "123456789012-", some(32))),
    "Slack, app": ("slack-app-token", joined("xapp", "-1-", some(11, _UP), "-", some(64, _LOW))),
    "Discord": ("https://discord.com/developers/docs/reference", joined("M", some(23), ".", some(6), ".", some(38))),
    "Telegram": ("telegram-bot-api-token", joined("1234567890", ":AA", some(33))),
    "Stripe": ("stripe-access-token", joined("sk", "_live_", some(24))),
    "Stripe, restricted": ("stripe-access-token", joined("rk", "_test_", some(24))),
    "Stripe, webhook": ("https://docs.stripe.com/webhooks", joined("whsec", "_", some(32))),
    "SendGrid": ("sendgrid-api-token", joined("S", "G.", some(22), ".", some(43))),
    "Twilio": ("twilio-api-key", joined("S", "K", some(32, _HEX))),
    "Mailgun": ("mailgun-private-api-token", joined("key", "-", some(32, _HEX))),
    "Mailchimp": ("mailchimp-api-key", joined(some(32, _HEX), "-us", "12")),
    "Brevo": ("sendinblue-api-token", joined("xkeysib", "-", some(64, _HEX), "-", some(16))),
    "Postman": ("postman-api-token", joined("PM", "AK-", some(24, _HEX), "-", some(34, _HEX))),
    "Shippo": ("shippo-api-token", joined("shippo", "_live_", some(40, _HEX))),
    "Shopify": ("shopify-access-token", joined("shp", "at_", some(32, _HEX))),
    "Shopify, secret": ("shopify-shared-secret", joined("shp", "ss_", some(32, _HEX))),
    "Square": ("square-access-token", joined("EA", "AA", some(60))),
    "Square, OAuth": ("square-access-token", joined("sq0", "atp-", some(22))),
    "Facebook": ("facebook-access-token", joined("EA", "AC", some(120))),
    "Airtable": ("airtable-personnal-access-token", joined("p", "at", some(14), ".", some(64, _HEX))),
    "Notion": ("notion-api-token", joined("ntn", "_", "12345678901", some(35))),
    "Linear": ("linear-api-key", joined("lin", "_api_", some(40))),
    "HubSpot": ("https://developers.hubspot.com", joined("pat", "-na1-", _UUID)),
    "Dropbox": ("dropbox-short-lived-api-token", joined("s", "l.", some(135))),
    "age": ("age-secret-key", joined("AGE-SECRET", "-KEY-1", some(58, "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"))),
    "JSON web token": ("jwt", joined("ey", "J", some(33), ".ey", "J", some(60), ".", some(43))),
    "JSON web token without a signature": ("jwt", joined("ey", "J", some(33), ".ey", "J", some(60), ".")),
    "JSON web token, encrypted": ("https://www.rfc-editor.org/rfc/rfc7516", joined("ey", "J", some(30), "..", some(16), ".", some(40), ".", some(22))),
}  # fmt: skip

_P = joined("horse", "-2-", "battery")
_S = some(40)
_H = some(32, _HEX)
#: By form: where it is described, a text, and what of it is secret.
SAID = {
    "Azure storage": ("https://learn.microsoft.com/azure/storage/common/storage-configure-connection-string",
                      f"DefaultEndpointsProtocol=https;AccountName=ada;AccountKey={some(86)}==;EndpointSuffix=core.x", None),
    "Azure service bus": ("https://learn.microsoft.com/azure/service-bus-messaging",
                          f"Endpoint=sb://a.x/;SharedAccessKeyName=all;SharedAccessKey={some(43)}=", None),
    "Azure SAS": ("https://learn.microsoft.com/azure/storage/common/storage-sas-overview",
                  f"https://a.blob.core.x/c/b?sv=2022-11-02&sr=b&sig={some(40)}%3D&se=2030", None),
    "SAS without an address": ("azure-sas", f"SharedAccessSignature=sr=a&sig={some(40)}%3D", None),
    "ADO.NET": ("https://learn.microsoft.com/sql/connect", f"Server=tcp:db,1433;User ID=ada;Password={_P};Encrypt=True", _P),
    "ADO.NET, short": ("https://learn.microsoft.com/sql/connect", "Server=db;Uid=ada;Pwd=horse;", "horse"),
    "AWS secret": ("aws", f"aws_secret_access_key = {some(40)}", None),
    "AWS session": ("aws", f"AWS_SESSION_TOKEN={some(200)}", None),
    "AWS pair": ("https://docs.aws.amazon.com/IAM", f"AK{'IA'}{some(16, _UP)},{_S}", _S),
    "AWS configure": ("https://docs.aws.amazon.com/cli", f"aws configure set aws_secret_access_key {_S}", _S),
    "AWS signature": ("https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html",
                      f"Authorization: AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature={some(64, _HEX)}", None),
    "AWS presigned": ("https://docs.aws.amazon.com/AmazonS3", f"https://b.s3.x/k?X-Amz-Date=1&X-Amz-Signature={some(64, _HEX)}", None),
    "GCP service account": ("https://cloud.google.com/iam/docs/keys-create-delete",
                            '{"type": "service_account", "private_key_id": "%s", "private_key": "%s"}' % (_H, pem("PRIVATE KEY").replace("\n", "\\n")), _H),
    "curl -u": ("curl-auth-user", "curl -sS -u ada:horse https://x/y", "horse"),
    "curl --user": ("curl-auth-user", "curl --user 'ada:correct horse' https://x", "correct"),
    "curl -u at once": ("curl-auth-user", "curl -uada:horse https://x", "horse"),
    "curl, proxy": ("https://curl.se/docs/manpage.html", "curl --proxy-user=ada:horse https://x", "horse"),
    "curl, header": ("curl-auth-header", f"curl -H 'X-Api-Key: {_H}' https://x", _H),
    "curl, cookie": ("https://curl.se/docs/manpage.html", "curl -b 'sid=horsebattery' https://x", "horsebattery"),
    "wget": ("https://www.gnu.org/software/wget/manual", f"wget --http-password={_P} https://x", _P),
    "cookie": ("https://www.rfc-editor.org/rfc/rfc6265", f"Cookie: theme=dark; _gitlab_session={_H}", _H),
    "set-cookie": ("https://www.rfc-editor.org/rfc/rfc6265", f"< set-cookie: user_session={_S}; Path=/; HttpOnly", _S),
    "cookie in JSON": ("https://www.rfc-editor.org/rfc/rfc6265", '{"Cookie": "sid=correcthorsebattery"}', "correcthorse"),
    "session": ("gitlab-session-cookie", f"_gitlab_session={_H}", _H),
    "session, Java": ("https://jakarta.ee/specifications/servlet", f"JSESSIONID={some(32, _UP)}", None),
    "secretKey in YAML": ("generic-api-key", "secretKey: correct-horse-2", "correct-horse-2"),
    "secretKey in JSON": ("generic-api-key", '{"secretKey": "correcthorse"}', "correcthorse"),
    "secret_access_key": ("generic-api-key", f"secret_access_key: {_S}", _S),
    "secretAccessKey": ("generic-api-key", f'"secretAccessKey": "{_S}"', _S),
    "clientSecret": ("generic-api-key", "clientSecret = 'correcthorse'", "correcthorse"),
    "client_secret in TOML": ("generic-api-key", f'client_secret = "{_S}"', _S),
    "accessToken": ("generic-api-key", '"accessToken":"correcthorsebattery"', "correcthorse"),
    "--client-secret": ("generic-api-key", f"az login --client-secret {_P}", _P),
    "--secretKey": ("generic-api-key", f"tool --secretKey {_P}", _P),
    "--password=": ("generic-api-key", f"tool --password={_P}", _P),
    "encryptionKey": ("generic-api-key", f"encryptionKey: {_H}", _H),
    "signing key": ("generic-api-key", f"SIGNING_KEY={_H}", _H),
    "app key of Datadog": ("datadog-access-token", f"DD_APP_KEY={some(40, _HEX)}", None),
    "header of Datadog": ("datadog-access-token", f"DD-API-KEY: {_H}", _H),
    "subscription key": ("https://learn.microsoft.com/azure/api-management", f"Ocp-Apim-Subscription-Key: {_H}", _H),
    "Twilio, context": ("https://www.twilio.com/docs/iam", f"TWILIO_AUTH_TOKEN={_H}", _H),
    "password with signs": ("generic-api-key", "password: p@$$w0rd!2024", "w0rd!2024"),
    "password in quotes": ("generic-api-key", 'password = "p@$$(w0rd)"', "w0rd"),
    "password in HTML": ("generic-api-key", "&quot;password&quot;: &quot;correcthorse&quot;", "correcthorse"),
    "bearer": ("curl-auth-header", f"Authorization: Bearer {some(30)}", None),
    "basic": ("https://www.rfc-editor.org/rfc/rfc7617", f"authorization: basic {b64('ada:horse-battery-2')}", b64("ada:horse-battery-2")),
    "proxy": ("https://www.rfc-editor.org/rfc/rfc7617", f"Proxy-Authorization: Basic {b64('ada:horse')}", b64("ada:horse")),
    "scheme of its own": ("https://www.rfc-editor.org/rfc/rfc9110", f"Authorization: ApiKey {_H}", _H),
    "git's header": ("https://git-scm.com/docs/git-config", f"http.extraheader=AUTHORIZATION: basic {b64('x:ghs_horse-battery')}", b64("x:ghs_horse-battery")),
    "address": ("https://www.rfc-editor.org/rfc/rfc3986", "https://ada:horse@x.org/a", "horse"),
    "PostgreSQL": ("https://www.postgresql.org/docs/current/libpq-connect.html", "postgresql://ada:horse@db:5432/x", "horse"),
    "PostgreSQL, sloppy": ("https://www.postgresql.org/docs/current/libpq-connect.html", "postgres://ada:ho/rse@db/x", "rse"),
    "libpq": ("https://www.postgresql.org/docs/current/libpq-connect.html", "host=db user=ada password=horse dbname=x", "horse"),
    "PGPASSWORD": ("https://www.postgresql.org/docs/current/libpq-envars.html", "PGPASSWORD=correcthorse psql", "correcthorse"),
    "MongoDB": ("https://www.mongodb.com/docs/manual/reference/connection-string", "mongodb+srv://ada:horse@c0.x.net/d", "horse"),
    "Redis": ("https://www.iana.org/assignments/uri-schemes/prov/redis", "redis://:horse@cache:6379/0", "horse"),
    "AMQP": ("https://www.rabbitmq.com/docs/uri-spec", "amqps://ada:horse@mq/v", "horse"),
    "SQLAlchemy": ("https://docs.sqlalchemy.org/en/20/core/engines.html", "mysql+pymysql://ada:horse@db/x", "horse"),
    "MySQL in Go": ("https://github.com/go-sql-driver/mysql", "ada:horse@tcp(db:3306)/x", "horse"),
    "mysql": ("https://dev.mysql.com/doc/refman/en/password-security-user.html", "mysql -u ada -phorse db", "horse"),
    "redis-cli": ("https://redis.io/docs/latest/develop/tools/cli", "redis-cli -h x -a horse ping", "horse"),
    "sshpass": ("https://linux.die.net/man/1/sshpass", "sshpass -p horse ssh ada@x", "horse"),
    "openssl": ("https://docs.openssl.org/master/man1/openssl-passphrase-options", "openssl rsa -passin pass:horse", "horse"),
    "netrc": ("https://everything.curl.dev/usingcurl/netrc", "machine x.org login ada password batteryhorse", "batteryhorse"),
    ".npmrc": ("npm, .npmrc", f"//registry.example.org/:_authToken={_UUID}", _UUID),
    ".npmrc, old": ("npm, .npmrc", f"_auth={b64('ada:horse')}", b64("ada:horse")),
    ".pypirc": ("https://packaging.python.org/specifications/pypirc", f"[pypi]\nusername = ada\npassword = {_P}", _P),
    "docker's file": ("https://docs.docker.com/reference/cli/docker/login", '{"auths": {"x": {"auth": "%s"}}}' % b64("ada:horse"), b64("ada:horse")),
    "docker login": ("https://docs.docker.com/reference/cli/docker/login", "docker login -u ada -p horsebattery x", "horsebattery"),
    "kubeconfig, token": ("kubernetes-secret-yaml", f"    token: {some(60)}", None),
    "kubeconfig, key": ("kubernetes-secret-yaml", f"    client-key-data: {b64(pem('RSA PRIVATE KEY'))}", b64(_PEM_BODY)[8:60]),
    "kubectl": ("https://kubernetes.io/docs/concepts/configuration/secret", "kubectl create secret generic a --from-literal=b=horse", "horse"),
    "wandb login": ("https://docs.wandb.ai/ref/cli/wandb-login", f"wandb login --relogin {some(40, _HEX)}", None),
    "WANDB_API_KEY": ("https://docs.wandb.ai", f"export WANDB_API_KEY={some(40, _HEX)}", None),
    "Discord webhook": ("https://discord.com/developers/docs/resources/webhook", f"https://discord.com/api/webhooks/123456789012/{some(68)}", None),
    "Slack webhook": ("slack-webhook-url", f"https://hooks.slack.com/services/T0123456/B0123456/{some(24)}", None),
    "Slack workflow": ("slack-webhook-url", f"https://hooks.slack.com/workflows/T0123456/A0123456/12345/{some(24)}", None),
    "Teams webhook": ("microsoft-teams-webhook", f"https://a.webhook.office.com/webhookb2/{_UUID}@{_UUID}/IncomingWebhook/{_H}/{_UUID}", _H),
    "Telegram, address": ("telegram-bot-api-token", f"https://api.telegram.org/bot123456789:{'AA'}{_S[:33]}/getMe", _S[:33]),
    "PuTTY": ("https://tartarus.org/~simon/putty-snapshots/htmldoc/AppendixC.html", f"Private-Lines: 2\n{some(64)}\n{_S}\nPrivate-MAC: 12", _S),
    "OpenVPN": ("https://openvpn.net/community-resources/reference-manual-for-openvpn", f"-----BEGIN OpenVPN {'Static'} key V1-----\n{_H}\n-----END OpenVPN Static key V1-----", _H),
    "SSH2": ("https://www.rfc-editor.org/rfc/rfc4716", f"---- BEGIN SSH2 {'ENCRYPTED'} PRIVATE KEY ----\nComment: \"a\"\n{_S}\n---- END SSH2 ENCRYPTED PRIVATE KEY ----", _S),
    "address with a key": ("generic-api-key", f"https://api.x/v1/a?page=1&key={_H}", _H),
    "Authorization as a mapping": ("curl-auth-header", "{'Authorization': 'token %s'}" % _H, _H),
}  # fmt: skip
_KINDS = [
    "PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "DSA PRIVATE KEY", "ENCRYPTED PRIVATE KEY",
    "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK", "ED25519 PRIVATE KEY", "ANY PRIVATE KEY",
]  # fmt: skip


def require_hidden(secret: str, text: str) -> None:
    clean = Redactor({}).text(text)
    assert "***" in clean
    part = secret[-12:] if len(secret) >= 12 else secret
    assert part not in clean, clean
    assert secret[-24:-12] == "" or len(secret) < 40 or secret[-24:-12] not in clean, clean


@pytest.mark.parametrize(
    "around", ["{}", "log: {} was refused", 'x="{}",', "\\n{}\\n", "https://x/?a={}&b=1", "\x1b[31m{}\x1b[0m"]
)
@pytest.mark.parametrize("name", TOKENS)
def test_a_token_goes_wherever_it_stands(name: str, around: str) -> None:
    require_hidden(TOKENS[name][1], around.format(TOKENS[name][1]))


@pytest.mark.parametrize(
    "mark",
    ["\x1b[31m", "\x1b[0;1;38;5;28m", "\x1b[K", "\x1b]8;;x\x07", "\x9b1m", "\\x1b[31m", "\\u001b[0m", "^[[31m", "\u200b",
     "\u200d\u2060", "\ufeff", "\xad", "\u202e", "\U000e0041", "\x00", "\\u200b", "&#8203;"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["GitHub, personal", "AWS", "Slack, bot", "SendGrid", "JSON web token", "age"])
def test_a_token_goes_that_something_unseen_divides(name: str, mark: str) -> None:
    token = TOKENS[name][1]
    for at in (2, 5, len(token) // 2, len(token) - 2):
        require_hidden(token[:at] + token[at:], f"a {token[:at]}{mark}{token[at:]} b")
    require_hidden(token, f"a {mark.join(token)} b")
    clean = Redactor({}).text(f"a {mark.join(token)} b")
    assert clean.replace(mark, "") == "a *** b"


@pytest.mark.parametrize("mark", ["\x1b[31m", "\u200b", "\\u200b"])
def test_a_divided_value_named_as_a_secret_is_removed(mark: str) -> None:
    assert Redactor({}).text(f"pass{mark}word: hunter-2{mark}-hunter") == f"pass{mark}word: ***"
    assert Redactor({"A_TOKEN": "some-value"}).text(f"so{mark}me-val{mark}ue") == "***"


@pytest.mark.parametrize("name", SAID)
def test_a_value_named_as_a_secret_is_removed(name: str) -> None:
    _, text, secret = SAID[name]
    for around in ("{}", "2026-05-07T03:12:00.1Z {}", "\x1b[36;1m{}\x1b[0m"):
        shown = around.replace("{}", text)
        clean = Redactor({}).text(shown)
        assert "***" in clean
        if secret is None:
            assert len(clean) < len(shown) - 15, clean
        else:
            assert secret not in clean, clean


@pytest.mark.parametrize("kind", _KINDS)
def test_a_private_key_goes(kind: str) -> None:
    for text in (
        pem(kind),
        pem(kind).replace("\n", "\\n"),
        pem(kind).replace("\n", "\\r\\n"),
        pem(kind).replace("\n", "\r\n"),
        "".join(f"2026-05-07T03:12:00.1Z [0]: {line}\n" for line in pem(kind).splitlines()),
        "".join(f"    {line}\n" for line in pem(kind).splitlines()),
        pem(kind).replace("\n", " "),
        pem(kind).partition("-----END")[0],
        f"key: {b64(pem(kind))}",
    ):
        clean = Redactor({}).text(f"before\n{text}")
        assert clean.startswith("before\n")
        for line in _PEM_BODY.split():
            assert line not in clean
            assert b64(line)[4:40] not in clean


def test_there_are_enough_of_each() -> None:
    assert len(TOKENS) + len(SAID) + len(_KINDS) >= 120
    assert len(STAYS) >= 60


#: What CI and people write, and what is no secret.
STAYS = [
    "5fe3f066585fe3f066585fe3f06658abcdef0123", "commit 5fe3f066585fe3f066585fe3f06658abcdef0123 (HEAD -> main)",
    "sha256:" + "0123456789abcdef" * 4, "nvcr.io/nvidia/pytorch@sha256:" + "0a" * 32, "sha512-" + "a1B2" * 21 + "ab==",
    "--hash=sha256:" + "0123456789abcdef" * 4, "index 5fe3f06..a1b2c3d 100644", "md5 d41d8cd98f00b204e9800998ecf8427e",
    "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/module.py:1553",
    "tests/functional_tests/test_cases/gpt/gpt3_mcore_te_tp1_pp4_vp1_dist_optimizer_overlap_grad_reduce/model_config.yaml",
    "/workspace/checkpoints/iter_0000100/mp_rank_00_000/model_optim_rng.pt",
    '{"lm loss": {"start_step": 1, "end_step": 100, "step_interval": 5, "values": {"1": 10.85921, "2": 10.8593}}}',
    '"mem-allocated-bytes": {"start_step": 0, "end_step": 34, "step_interval": 5, "values": [1767237120.0]}',
    '"num-zeros": {"values": [1234567890, 2345678901]}', '"iteration-time": [12.64321, 0.33214]',
    " iteration 12/ 100 | consumed samples: 1234 | elapsed time per iteration (ms): 331.2 | lm loss: 1.234567E+00 |",
    "2026-05-07T03:12:00.1234567Z ##[group]Run actions/checkout@v4", "##[error]Process completed with exit code 1.",
    "[rank0]:[W507 03:12:00.123 ProcessGroupNCCL.cpp:1496] Warning: destroy_process_group() was not called",
    "NCCL version 2.27.3+cuda13.0", "NVIDIA Release 26.04 (build 123456789)", "torch==2.9.0a0+145a3a7bda.nv25.10",
    "CUDA_VERSION=13.0.2.006", "PATH=/usr/local/cuda/bin:/usr/bin", "PWD=/workspace/megatron-lm-2",
    "FAILED tests/unit_tests/test_a.py::test_b[1-bf16-True] - AssertionError: 0.1234 != 0.1235",
    'File "/opt/megatron-lm/megatron/core/tensor_parallel/layers.py", line 1234, in forward', "0x7f8a1c2d3e4f",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has 79.11 GiB",
    "next_token = torch.argmax(logits[:, -1])", "num_tokens: 40960000", "max_tokens=4096", "tokens_per_sec: 12345.67",
    "pad_token_id=128001", "eos_token: '<|im_end|>'", '"bos_token": "begin_of_text"', "tokenizer: GPT2BPETokenizer",
    "--tokenizer-model /mnt/artifacts/tokenizers/a1/tokenizer.model", "--seq-length 4096 --micro-batch-size 1",
    "secrets.GITHUB_TOKEN", "${{ secrets.NGC_API_KEY }}", "password: ${DB_PASSWORD}", "export NGC_API_KEY=$NGC_API_KEY",
    "TOKEN=$(cat /run/secrets/token)", "password: <your password>", "--password-stdin", "apiKey: '{{ api_key }}'",
    "The password: whatever was agreed on.", "secretKeyRef:", "key: linux-pip-5fe3f066585fe3f06658",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0a1b2c3d4e5f6g7h8i9j0k1l2m3n4o5p6q7r ada@x",
    "256 SHA256:uNiVztksCsDhcc0u9e8BrXJXVGDPkzLStBEUc1dVzcg github.com (ED25519)", "SHA256:abcdefghijklmnop",
    "550e8400-e29b-41d4-a716-446655440000", "https://github.com/NVIDIA/Megatron-LM/actions/runs/12345678901/job/98765432109",
    "https://nvcr.io/v2/nvidia/pytorch/manifests/26.04-py3", "https://api.github.com/repos/o/r/pulls?state=open&page=2",
    "https://x.org:8443/path/@scope/pkg", "git@github.com:NVIDIA/Megatron-LM.git", "ada@x.org", "docker run -u 1000:1000 image",
    "docker run -p 8080:80 image", "curl -sSL https://x.org/install.sh", "curl -u $USER:$TOKEN https://x", "author: Ada",
    "srun --container-image=nvcr.io#nvidia/pytorch:26.04-py3 --mpi=pmix", "#SBATCH --gpus-per-node=8",
    "pull-request/1234", "gpt3_tp1_pp2-2ab1", "dev-26.04-py3", "skip-learn-at-least-twenty-times", "task-1234567890abcdef",
    "-----BEGIN CERTIFICATE-----", "-----BEGIN PUBLIC KEY-----", "-----BEGIN PGP SIGNATURE-----", "Private key: not found",
    "Cookies are disabled.", "set-cookie", "basic knowledge", "bearer of bad news",
    "sess = tf.Session()", "session: 12 tests", "sig = inspect.signature(function)", "?signature=short", "AC power", "SK hynix",
    "a.b.c.d.e.f", "M" * 40, "eyJ", "eyJhbGciOiJub25lIn0", "SG.", "sq0", "s.split().rstrip().strip()", "dp.optimizer.step_function_name",
    "Step 3/12 : ARG FROM_IMAGE_NAME=nvcr.io/nvidia/pytorch:26.04-py3", "ENV TOKENIZERS_PARALLELISM false",
    "\x1b[36;1mpython -m pytest -x tests/unit_tests\x1b[0m", "\x1b[32m✓ passed\x1b[0m", "a\u200bb", "100%|\u2588\u2588| 12/12 [00:01<00:00]",
    "remote: Enumerating objects: 1234, done.", "Removing intermediate container 5fe3f066585f", "#7 sha256:0a1b2c3d 12.3MB / 45.6MB",
]  # fmt: skip


@pytest.mark.parametrize("text", STAYS)
def test_lines_printed_by_ci_stay(text: str) -> None:
    for around in ("{}", "2026-05-07T03:12:00.1234567Z {}", "{}\nnext line"):
        shown = around.replace("{}", text)
        assert Redactor({"MY_KEY": "short", "HOME": "/home/ada"}).text(shown) == shown
