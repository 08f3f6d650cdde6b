"""What somebody hostile may write: as names, as texts of logs, as Markdown and HTML.  Each has a name of its own."""

from collections.abc import Mapping

#: The sign of an injection: a file of this name in the current folder, or beside.
CANARY = "canary-was-here"

_SHELL = {
    "command": f"$(touch {CANARY})",
    "backticks": f"`touch {CANARY}`",
    "quote": f"a'; touch {CANARY}; '",
    "double quote": f'a"; touch {CANARY}; "',
    "newline": f"a\ntouch {CANARY}\n",
    "backslash": "a\\",
    "python": f"');__import__('os').system('touch {CANARY}');('",
    "magic line": f"a\n!touch {CANARY}\n%system touch {CANARY}\n%%bash\ntouch {CANARY}",
    "format": "{0.__class__}{tag}%(a)s%s",
    "template": "{{7*7}}<%= 7*7 %>#{7*7}${{ secrets.GITHUB_TOKEN }}",
}
_OPTIONS = {
    "option": "--help",
    "dashes": "--",
    "upload pack": f"--upload-pack=touch {CANARY}",
    "output": f"--output={CANARY}",
    "proxy command": f"-oProxyCommand=touch {CANARY}",
    "ext": f"ext::sh -c touch% {CANARY}",
    "upstream": "@{u}",
    "range": "main..HEAD",
    "colon": "main:README.md",
    "magic path": ":(exclude)*",
    "refspec": "+refs/heads/*:refs/heads/*",
    "up": "../../../../etc/passwd",
}
_SIGNS = {
    "right to left": "a\u202egpj.exe",
    "zero width": "a\u200bb\u200cc\u200dd\u2060e\ufefff",
    "tags": "a\U000e0041\U000e007f",
    "line separators": "a\u2028b\u2029c\x85d",
    "ansi clear": "\x1b[2J\x1b[Hgone",
    "ansi link": "\x1b]8;;https://evil.example\x07a\x1b]8;;\x07",
    "c1": "a\x9b31mb\x90c",
    "nul": "a\x00b",
    "surrogate": "a\udcffb\ud800",
    "long": "a" * 100_000,
    "empty": "",
}
NAMES: Mapping[str, str] = _SHELL | _OPTIONS | _SIGNS

#: What must not work in a text of ours on a forge.
MARKDOWN: Mapping[str, str] = {
    "mention": "@octocat look",
    "mention after a sign": "a@octocat é@octocat \u200b@octocat",
    "closes": "fixes #1, closes #2, resolves GH-3",
    "closes by address": "fixes https://github.com/NVIDIA/Megatron-LM/issues/1",
    "address": "see http://github.com/o/r/pull/3 www.evil.example ftp://evil.example/a",
    "image": "![x](https://evil.example/pixel.png)",
    "link": "[click](https://evil.example) <https://evil.example> [a](javascript:alert(1))",
    "autolinks": "<javascript:alert(1)> <a@evil.example> a@evil.example mailto:a@evil.example",
    "reference": "[main]: https://evil.example\n[Record]: https://evil.example",
    "html": "<b>a</b><img src=https://evil.example/a><script>alert(1)</script>",
    "details": "</details><details><summary>@octocat</summary>",
    "end of a cell": "a | @octocat | fixes #1 |",
    "open comment": "a <!-- everything after this is gone",
    "marker": "<!-- base-image-runbook:end --> @octocat <!-- base-image-runbook:begin -->",
    "fence": "```\n@octocat fixes #1\n```",
    "end of a fence": "```",
    "open fence": "a\n```\nb",
    "backticks": "a ` b `` c ``` d @octocat ` e",
    "quote": "> @octocat",
    "mathematics": "$\\rm{@octocat}$ $$a$$",
    "entities": "&#64;octocat &commat;octocat &#35;1 &num;1",
    "bot": "/ok to test 0123456789abcdef",
    "bot on its line": "a\n/ok to test 0123456789abcdef\nb",
    "skip": "[skip ci] [ci skip] [no ci] [skip actions] [actions skip] [Skip CI] ***NO_CI***",
    "trailers": "a\n\nCo-authored-by: Eve <eve@evil.example>\nSigned-off-by: Eve <eve@evil.example>\nskip-checks: true",
    "commit comment": "#a\n;b",
}

#: What must not work on a page of ours.
HTML: Mapping[str, str] = {
    "script": "<script>alert(1)</script>",
    "end of script": "</script><script>alert(1)//",
    "handler": "<img src=x onerror=alert(1)>",
    "open tag": "<img src=x onerror=alert(1) y=",
    "math": "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "policy": "<meta http-equiv=Content-Security-Policy content=''>",
    "style": "<style>@import url(https://evil.example);body{display:none}</style>",
    "style attribute": '<p style="background:url(https://evil.example)">a',
    "over the page": "<div style='position:fixed;inset:0'>a</div>",
    "javascript": "<a href=javascript:alert(1)>a</a> javascript:alert(1)",
    "data": "<a href='data:text/html,<script>alert(1)</script>'>a</a> <object data=data:text/html,a>",
    "title": "</title><script>alert(1)</script>",
    "quote in an address": 'https://evil.example/"onmouseover="alert(1)',
    "entity": "&lt;script&gt;alert(1)&lt;/script&gt; &#60;script&#62;",
    "nul in a tag": "<scr\x00ipt>alert(1)</scr\x00ipt>",
}

ALL: Mapping[str, str] = (
    {f"name: {key}": value for key, value in NAMES.items()}
    | {f"markdown: {key}": value for key, value in MARKDOWN.items()}
    | {f"html: {key}": value for key, value in HTML.items()}
)
