import pytest

from whyidle.monitor.processes.secrets import LONGEST, mask, mask_text


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["--token", "abc123", "train.py"], ["--token", "***", "train.py"]),
        (["--hf-token=abc123"], ["--hf-token=***"]),
        (["--api_key", "abc"], ["--api_key", "***"]),
        (["--apiKey=abc"], ["--apiKey=***"]),
        (["-password", "x y"], ["-password", "***"]),
        (["WANDB_API_KEY=abc"], ["WANDB_API_KEY=***"]),
        (["--wandb-key", "abc"], ["--wandb-key", "***"]),
        (["--secret"], ["--secret"]),
        (["--password", "--verbose"], ["--password", "--verbose"]),
        (["s3.secret_access_key=abc"], ["s3.secret_access_key=***"]),
        (["--github_pat", "S10"], ["--github_pat", "***"]),
        (["--auth", "S13", "train.py"], ["--auth", "***", "train.py"]),
        (["--pw=S12"], ["--pw=***"]),
        (["-H", "Authorization: Token S14abc"], ["-H", "Authorization: ***"]),
        (["--header=Authorization: S14abc"], ["--header=Authorization: ***"]),
        (["Authorization:", "Token", "S14abc", "x"], ["Authorization:", "Token", "***", "x"]),
        (['{"password": "S7"}'], ['{"password": "***"}']),
        (['{"hf_token":"abcSECRET", "lr": 1}'], ['{"hf_token":"***", "lr": 1}']),
        (["{'accessToken': 'S7 x'}"], ["{'accessToken': '***'}"]),
        (['{\\"password\\": \\"S7\\"}'], ['{\\"password\\": \\"***\\"}']),
        (["headers={'Authorization': f'Token S7'}"], ["headers={'Authorization': f'***'}"]),
        (["mysql://root:a@b@h/db"], ["mysql://root:***@h/db"]),
        (
            ["db=postgres+psycopg://me@site:a@b@h:5/db"],
            ["db=postgres+psycopg://me@site:***@h:5/db"],
        ),
    ],
)
def test_a_named_secret_is_masked(given: list[str], kept: list[str]) -> None:
    assert mask(given) == kept


@pytest.mark.parametrize(
    "harmless",
    [
        ["python", "train.py", "--tokenizer", "gpt2"],
        ["--max-tokens", "512", "--token-dim=64"],
        ["--key", "value", "--keyboard", "us"],
        ["--password-file", "/etc/pw"],
        ["--lr=3e-4", "--data", "s3://bucket/a=b"],
        ["--num-tokens=7"],
        ["--tokenizer", "x", "--max-tokens", "5", "--tokenizerName=x"],
        ["--author", "me", "--patience", "3", "--path", "x", "--path=x", "--pattern=x"],
        ["--no-auth", "train.py", "--auth-mode", "none"],
        ["{'key': 'value', 'max_tokens': 5, 'author': 'me', 'path': 'x'}"],
        ["http://host:8080/a@b", "git@host:repo"],
    ],
)
def test_a_harmless_argument_stays(harmless: list[str]) -> None:
    assert mask(harmless) == harmless


@pytest.mark.parametrize(
    "text",
    [
        "login('hf_abcdefghijklmnopqrst')",
        "https://me:sesame@host/repo",
        "curl -H 'Authorization: Bearer sesamesesame'",
        "os.environ['X'] = 'sk-sesamesesamesesame'",
        "wandb.login(key='0123456789abcdef0123456789abcdef01234567')",
        "export PASSWORD=sesame; python train.py",
        "connect(password='sesame', host='x')",
        "AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc",
    ],
)
def test_a_secret_inside_a_text_is_masked(text: str) -> None:
    masked = mask_text(text)
    assert "***" in masked
    for secret in ("sesame", "hf_a", "0123456789abcdef", "AKIA", "eyJ"):
        assert secret not in masked.replace("***", "")


def test_the_flag_before_a_secret_that_looks_like_nothing() -> None:
    assert mask(["--token", "-5"]) == ["--token", "***"]


def test_a_long_argument_is_masked_in_no_time() -> None:
    # Ten times the work of a tenth, not a hundred times: it would take minutes.
    for text in ("x" * 2_000_000, "a.b-c_" * 10_000, "aB" * 1_000_000):
        assert mask_text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "python t.py --hf-token sesame123 --lr 1",
        'python t.py --password "sesame open" --lr 1',
        "os.environ['HF_TOKEN']='sesame open'",
        "-DTOKEN=sesame",
        "git clone https://sesamesesamesesame@host/repo",
        "curl https://bucket/x?X-Amz-Signature=sesame&y=1",
        "curl 'https://blob/x?sig=sesame'",
        "npm_sesamesesamesesamesesame",
    ],
)
def test_a_secret_in_a_shells_line_is_masked(text: str) -> None:
    assert "sesame" not in mask_text(text)
    assert "***" in mask_text(text)


@pytest.mark.parametrize(
    "text",
    ["python t.py --max-tokens 5 --lr 1", "ssh git@host", "python t.py --no-auth x", "a@b.example"],
)
def test_a_harmless_line_stays(text: str) -> None:
    assert mask_text(text) == text


def test_a_program_in_an_argument_is_cut() -> None:
    (cut,) = mask(["a-" * 100_000])
    assert len(cut) <= LONGEST + 1
