"""LibreTranslate's interface: the forms and messages that its clients know."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st
from starlette.testclient import TestClient
from translate.lang import data

from regard.serving.application import create_app
from regard.serving.client_limits import ServingLimits
from regard.serving.language_codes import NAMES
from regard.serving.language_detection import detect, load_identifier
from regard.serving.refusals import BusyError, LateError
from regard.tokens.language_directions import Direction
from tests.examples import examples
from tests.serving.fakes import FakeModels

LIMITS = ServingLimits(characters=200, batch=20, alternatives=3, bytes=20_000, upload=5_000)


def client_of(models: FakeModels, **options: Any) -> TestClient:
    return TestClient(create_app(models, options.pop("limits", LIMITS), **options), base_url="http://localhost:5000")


@pytest.fixture
def models() -> FakeModels:
    return FakeModels("en-de", "de-en", "en-fr", "en-zh", "fr-pt_BR")


@pytest.fixture
def client(models: FakeModels) -> Iterator[TestClient]:
    with client_of(models) as client:
        yield client


def asked(**values: Any) -> dict[str, Any]:
    return {"q": "hello", "source": "en", "target": "de", **values}


# Ways to ask


@pytest.mark.parametrize(
    "how",
    [
        {"json": asked()},
        {"data": asked()},
        {"params": asked()},
        {"files": {name: (None, value) for name, value in asked().items()}},
        {"params": asked(), "json": [{}]},
        {"params": {"q": "hello"}, "data": {"source": "EN", "target": "De"}},
    ],
    ids=["json", "form", "query", "multipart", "query and a list", "both"],
)
def test_texts_come_in_json_in_forms_and_in_the_query(client: TestClient, how: dict[str, Any]) -> None:
    answer = client.post("/translate", **how)
    assert (answer.status_code, answer.json()) == (200, {"translatedText": "HELLO@de"})


def test_a_list_is_answered_with_lists_from_one_batch(client: TestClient, models: FakeModels) -> None:
    texts = ["the dog", "with the cat", ""]
    answer = client.post("/translate", json=asked(q=texts, alternatives=2, source="auto")).json()
    assert answer["translatedText"] == ["THE DOG@de", "WITH THE CAT@de", ""]
    assert answer["alternatives"] == [["THE DOG 0@de", "THE DOG 1@de"], ["WITH THE CAT 0@de", "WITH THE CAT 1@de"], []]
    assert [each["language"] for each in answer["detectedLanguage"]] == ["en"] * 3
    assert [texts for texts, _ in models.queue(Direction("en", "de")).calls] == [["the dog", "with the cat"]]


def test_several_texts_of_a_form_are_a_list(client: TestClient) -> None:
    answer = client.post("/translate", data=asked(q=["one\r\n", "two"])).json()
    assert answer == {"translatedText": ["ONE@de\n", "TWO@de"]}


def test_answers_have_only_the_fields_that_were_requested(client: TestClient) -> None:
    assert list(client.post("/translate", json=asked()).json()) == ["translatedText"]
    assert list(client.post("/translate", json=asked(alternatives=0)).json()) == ["translatedText"]
    more = client.post("/translate", json=asked(scores=True, flags=True)).json()
    assert more == {"translatedText": "HELLO@de", "scores": -0.5, "confidence": 0.75, "flags": []}


def test_alignment_is_returned_on_request(client: TestClient) -> None:
    answer = client.post("/translate", json=asked(alignment=True)).json()
    assert answer["alignment"] == {"source": ["x", "y"], "target": ["a"], "weights": [[0.1235, 1.0]]}


def test_terms_come_with_a_request(client: TestClient) -> None:
    answer = client.post("/translate", json=asked(q="a dog", glossary={"dog": "Köter"})).json()
    assert answer["translatedText"] == "A DOG@deKöter"
    assert [(term["source"], term["targets"]) for term in answer["glossary"]] == [("dog", ["Köter"])]
    for wrong in ("dog", {"dog": ""}, {"dog": 1}, {str(n): "x" for n in range(101)}):
        assert client.post("/translate", json=asked(glossary=wrong)).status_code == 400


def test_line_ends_of_forms_are_line_feeds_and_those_of_json_stay(client: TestClient, models: FakeModels) -> None:
    assert client.post("/translate", data=asked(q="a\r\nb")).json()["translatedText"] == "A@de\nB@de"
    client.post("/translate", json=asked(q="a\r\nb"))
    assert models.queue(Direction("en", "de")).calls[-1][0] == ["a\r\nb"]


@pytest.mark.parametrize("text", ["🙂", "  ", "…", "123", "\n\n", " 🙂 \t"])
def test_a_text_without_words_comes_back_untouched(client: TestClient, models: FakeModels, text: str) -> None:
    assert client.post("/translate", json=asked(q=text)).json() == {"translatedText": text}
    assert models.queue(Direction("en", "de")).calls == []


def test_white_space_around_a_text_stays(client: TestClient) -> None:
    assert client.post("/translate", json=asked(q="  hello\n")).json() == {"translatedText": "  HELLO@de\n"}


def test_half_a_character_does_no_harm(client: TestClient) -> None:
    answer = client.post("/translate", content=b'{"q": "x\\ud800", "source": "en", "target": "de"}', headers=JSON)
    assert answer.json() == {"translatedText": "X\N{REPLACEMENT CHARACTER}@de"}


JSON = {"Content-Type": "application/json"}


# Languages


def test_languages_are_listed_with_their_targets(client: TestClient) -> None:
    told = {each["code"]: each for each in client.get("/languages").json()}
    assert told["en"] == {"code": "en", "name": "English", "targets": ["de", "en", "fr", "zh-Hans"]}
    assert told["de"]["targets"] == ["de", "en"]
    assert told["pt-BR"] == {"code": "pt-BR", "name": "Portuguese (Brazil)", "targets": ["pt-BR"]}
    assert told["zh-Hans"]["name"] == "Chinese"


@pytest.mark.parametrize("code", ["zh", "ZH", "zh-Hans", "zh-hans", "zh_Hans"])
def test_codes_are_known_in_every_spelling(client: TestClient, code: str) -> None:
    assert client.post("/translate", json=asked(target=code)).json() == {"translatedText": "HELLO@zh"}


@pytest.mark.parametrize("code", ["pb", "pt-BR", "pt_BR"])
def test_codes_of_regions_are_known_in_every_spelling(client: TestClient, code: str) -> None:
    assert client.post("/translate", json=asked(source="fr", target=code)).json() == {"translatedText": "HELLO@pt_BR"}


def test_a_language_into_itself_stays(client: TestClient) -> None:
    assert client.post("/translate", json=asked(target="en")).json() == {"translatedText": "hello"}


def test_a_language_in_between_is_used_only_if_allowed(models: FakeModels) -> None:
    question = asked(q="Hello %s!", source="de", target="fr")
    with client_of(models) as client:
        assert client.post("/translate", json=question).status_code == 400
    with client_of(models, pivot="en") as client:
        assert client.post("/translate", json=question).json() == {"translatedText": "HELLO %s!"}
        assert client.post("/translate", json={**question, "q": "Hello"}).json() == {"translatedText": "HELLO@EN@fr"}
        assert "fr" in {each["code"]: each for each in client.get("/languages").json()}["de"]["targets"]


def test_the_language_is_detected_among_those_that_lead_to_the_target(client: TestClient) -> None:
    german = "Die Katze sieht den Hund nicht, aber sie hört ihn."
    answer = client.post("/translate", json=asked(q=german, source="auto", target="en")).json()
    assert answer["detectedLanguage"]["language"] == "de"
    assert answer["detectedLanguage"]["confidence"] > 90
    answer = client.post("/translate", json=asked(q=german, source="auto", target="fr")).json()
    assert answer["detectedLanguage"]["language"] in ("en", "fr")  # nothing else leads there
    assert answer["detectedLanguage"]["confidence"] < 10


def test_the_names_of_tags_are_no_words(client: TestClient) -> None:
    for text, least, most in (("<i>12</i> <p>34</p>", 0, 0), ("<p>Die Katze sieht den Hund nicht.</p>", 90, 100)):
        answer = client.post("/translate", json=asked(q=text, source="auto", format="html", target="en")).json()
        assert least <= answer["detectedLanguage"]["confidence"] <= most


SENTENCES = {
    "bg": "Кучето не вижда котката.", "ca": "El gos no veu el gat.", "cs": "Pes nevidí kočku, která spí.",
    "da": "Hunden kan ikke se katten på gulvet.", "de": "Der Hund sieht die Katze nicht.",
    "en": "The dog does not see the cat.", "eo": "La hundo ne vidas la katon.", "es": "El perro no ve al gato.",
    "fi": "Koira ei näe kissaa.", "fr": "Le chien ne voit pas le chat.", "hu": "A kutya nem látja a macskát.",
    "it": "Il cane non vede il gatto.", "nl": "De hond ziet de kat niet.", "pl": "Pies nie widzi kota.",
    "pt": "O cão não vê o gato que dorme.",
    "ro": "Câinele nu vede pisica.", "ru": "Собака не видит кошку, которая спит.",
    "sv": "Hunden ser inte katten.", "tr": "Köpek kediyi görmüyor.", "uk": "Собака не бачить кішку.",
    "vi": "Con chó không nhìn thấy con mèo.", "zh": "狗看不见猫。",
}  # fmt: skip


def test_a_sentence_is_certain_and_a_word_of_several_languages_is_not() -> None:
    for language, text in SENTENCES.items():
        assert detect(text, list(SENTENCES))[0][0] == language
    for language in ("en", "de"):
        (_, confidence), (_, second), *_ = detect(SENTENCES[language], list(SENTENCES))
        assert confidence > 99
        assert second < 1
    found = dict(detect("hand", list(SENTENCES)))
    assert max(found.values()) < 20
    assert sum(found.values()) <= 100


def test_languages_have_the_names_that_others_use() -> None:
    theirs = {code.lower().replace("_", "-"): each[0] for code, each in data.languages.items()}
    assert all(own in theirs[code] for code, own in NAMES.items() if code in theirs)
    assert {code: own for code, own in NAMES.items() if code not in theirs} == {
        "la": "Latin", "no": "Norwegian", "tl": "Tagalog", "yi": "Yiddish",
        "zh-hans": "Chinese", "zh-hant": "Chinese (traditional)",
    }  # fmt: skip
    assert set(SCRIPTS_OF_ONE) <= set(NAMES)
    assert len(load_identifier().nb_classes) > 80


SCRIPTS_OF_ONE = {
    "el": "Ο σκύλος", "he": "הכלב", "th": "สุนัข", "ka": "ძაღლი", "hy": "շուն", "bn": "কুকুর", "ta": "நாய்", "te": "కుక్క",
    "kn": "ನಾಯಿ", "ml": "നായ", "gu": "કૂતરો", "pa": "ਕੁੱਤਾ", "si": "බල්ලා", "km": "ឆ្កែ", "lo": "ໝາ", "my": "ခွေး", "am": "ውሻ",
    "ko": "개가 잔다", "ja": "犬が寝ている",
}  # fmt: skip


@pytest.mark.parametrize("name", ["characters", "batch"])
@pytest.mark.parametrize(("most", "amount", "allowed"), [(3, 3, True), (3, 4, False), (0, 1, False), (-1, 50, True)])
def test_a_limit_is_the_most_that_is_allowed(name: str, most: int, amount: int, allowed: bool) -> None:
    """-1 allows any number."""
    texts: str | list[str] = "x" * amount if name == "characters" else ["x"] * amount
    with client_of(FakeModels("en-de"), limits=ServingLimits(**{name: most})) as client:
        assert client.post("/translate", json=asked(q=texts)).status_code == (200 if allowed else 400)


def test_a_text_without_words_is_in_english_or_in_the_first_language() -> None:
    for directions, language in ((("de-fr",), "de"), (("de-fr", "fr-de"), "de"), (("de-fr", "en-fr"), "en")):
        with client_of(FakeModels(*directions)) as client:
            (found,) = client.post("/detect", json={"q": "123"}).json()
        assert found == {"language": language, "confidence": 0.0}


def test_a_script_of_one_language_is_certain() -> None:
    among = [*SCRIPTS_OF_ONE, "en", "ru", "zh"]
    for language, text in SCRIPTS_OF_ONE.items():
        (first, confidence), (_, second), *_ = detect(text, among)
        assert first == language
        assert confidence > 90
        assert second < 10
    assert detect("コーヒー", among)[0][0] == "ja"
    assert detect("漢字の本", among)[0][0] == "ja", "few kana are enough"
    assert detect("我喜欢狗", among)[0][0] == "zh"
    assert detect("无法打开这个文件", ["zh_Hant", "zh_Hans"])[0][0] == "zh_Hans"
    assert detect("無法打開這個文件", ["zh", "zh_Hant"])[0][0] == "zh_Hant"


def test_a_language_is_known_by_its_other_names() -> None:
    assert detect("Jeg vet ikke hva det er", ["no", "sv"])[0][0] == "no"
    assert detect("Jeg vet ikke hva det er", ["sv", "nb"])[0][0] == "nb"
    assert detect("הכלב", ["iw"])[0][1] > 99
    assert detect("Eu não sei o que é isso", ["es", "pt_BR"])[0][0] == "pt_BR"
    assert detect("123 !?", ["en", "de"]) == [("en", 0.0), ("de", 0.0)]


def test_detect_tells_three_at_most_and_says_when_it_cannot_tell(client: TestClient) -> None:
    found = client.post("/detect", data={"q": "The cat does not see the dog."}).json()
    assert found[0]["language"] == "en"
    assert found[0]["confidence"] > 90
    assert 1 <= len(found) <= 3
    assert client.post("/detect", json={"q": "123 🙂"}).json() == [{"confidence": 0.0, "language": "en"}]
    chinese = client.post("/detect", json={"q": ["无法打开这个文件"]}).json()
    assert chinese[0]["language"] == "zh-Hans"


# What must be kept


PLACEHOLDERS = "Delete [X12X] from [X30X], or all %(count)d?"


@pytest.mark.parametrize("clumsy", [False, True], ids=["a model that keeps them", "a model that loses them"])
def test_placeholders_of_weblate_survive_verbatim(clumsy: bool) -> None:
    with client_of(FakeModels("en-de", clumsy=clumsy)) as client:
        body = {"api_key": "", "q": [PLACEHOLDERS, "[X0X]"], "source": "en", "target": "de", "flags": True}
        answer = client.post("/translate", json=body, headers={"Accept": "application/json; charset=utf-8"}).json()
    text = answer["translatedText"][0]
    assert text.startswith("DELETE")
    assert all(text.count(piece) == 1 for piece in ("[X12X]", "[X30X]", "%(count)d"))
    assert answer["translatedText"][1] == "[X0X]"
    assert bool(answer["flags"][0]) == clumsy


@given(st.lists(st.sampled_from(["word", "[X1X]", "[X23X]", "%s", "{name}", ",", "?", "<b>", "</b>"]), max_size=8))
@examples(40)
def test_every_placeholder_is_there_as_often_as_before(parts: list[str]) -> None:
    text = " ".join(["go", *parts])
    with client_of(FakeModels("en-de", clumsy=True)) as client:
        made = client.post("/translate", json=asked(q=text)).json()["translatedText"]
    assert all(made.count(piece) == text.count(piece) for piece in ("[X1X]", "[X23X]", "%s", "{name}"))


PAGE = (
    '<p>Hello <a href="https://example.org/?a=1&amp;b=2" class="mention">@<span>bob</span></a>, see <b>this</b>!</p>'
    "<!-- not this --><script>var stay = 'here';</script>"
    "<p>Tom &amp; Ann &lt;3 caf&eacute;<br>Run <code>rm -r x</code></p>"
)


@pytest.mark.parametrize("clumsy", [False, True])
def test_html_keeps_its_markup(clumsy: bool) -> None:
    with client_of(FakeModels("en-de", clumsy=clumsy), limits=ServingLimits()) as client:
        body = {"q": [PAGE, "<p>one</p>"], "source": "auto", "target": "de", "format": "html", "alternatives": 1}
        answer = client.post("/translate", json=body).json()
    first, second = answer["translatedText"]
    for piece in (
        '<a href="https://example.org/?a=1&amp;b=2" class="mention">',
        *("<p>", "</p>", "<b>", "</b>", "<span>", "<br>", "&amp;", "&lt;", "<code>rm -r x</code>"),
        "<!-- not this --><script>var stay = 'here';</script>",
    ):
        assert first.count(piece) == PAGE.count(piece), piece
    assert "HELLO" in first
    assert "CAFÉ" in first
    assert second == "<p>ONE@de</p>"
    assert answer["alternatives"] == [[], []]
    assert answer["detectedLanguage"][1]["language"] == "en"


def test_markup_that_a_model_makes_up_is_text() -> None:
    models = FakeModels("en-de")
    with client_of(models) as client:
        answer = client.post("/translate", json=asked(q="a < b <script", format="html")).json()
    assert "<" not in answer["translatedText"]


# Files


def translated(client: TestClient, name: str, content: bytes, **values: Any) -> Any:
    form = {"source": "en", "target": "de", **values}
    return client.post("/translate_file", data=form, files={"file": (name, content)})


def test_a_file_is_translated_and_fetched(client: TestClient) -> None:
    catalogue = b'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "Save %s"\nmsgstr ""\n'
    answer = translated(client, "my app.po", catalogue)
    address = answer.json()["translatedFileUrl"]
    assert address.startswith("http://localhost:5000/download_file/")
    assert address.endswith(".my_app_de.po")
    fetched = client.get(address)
    assert b'msgstr "SAVE %s"' in fetched.content
    assert "attachment" in fetched.headers["content-disposition"]
    assert fetched.headers["x-content-type-options"] == "nosniff"


def test_a_file_obeys_the_limits_of_characters_and_time(models: FakeModels) -> None:
    def translate(client: TestClient, text: str) -> Any:
        return client.post("/translate_file", files={"file": ("a.txt", text)}, data={"source": "en", "target": "de"})

    with client_of(models, limits=ServingLimits(characters=20)) as client:
        assert translate(client, "x" * 20).status_code == 200
        answer = translate(client, "a line\n" * 4)
        assert (answer.status_code, "exceeds text limit (20)" in answer.json()["error"]) == (400, True)
    models.queue(Direction("en", "de")).delay = 30.0
    started = time.monotonic()
    with client_of(models, limits=ServingLimits(answering=2.0)) as client:
        assert translate(client, "a line").status_code == 504
    assert time.monotonic() - started < 20


def test_the_language_of_a_file_is_detected(client: TestClient) -> None:
    answer = translated(client, "a.txt", b"Das ist nicht der Hund.\n", source="auto", target="en")
    assert client.get(answer.json()["translatedFileUrl"]).text == "DAS IST NICHT DER HUND.@en\n"


@pytest.mark.parametrize(
    ("name", "content", "status", "told"),
    [
        ("a.exe", b"x", 400, "Invalid request: file format not supported"),
        ("a.po.gz", b"x", 400, "Invalid request: file format not supported"),
        ("a.txt", b"\xff\xfe", 400, "Invalid request: a.txt:1: byte 1 of the file"),
        ("../../etc/b.txt", b"\xff", 400, "Invalid request: b.txt:1: byte 1 of the file"),
        ("a.txt", b"x" * 6_000, 413, "Invalid request: request (5001) exceeds text limit (5000)"),
        ("a.txt", b"x" * 200_000, 413, "exceeds limit (105000)"),
    ],
)
def test_files_that_cannot_be_translated_are_refused(
    client: TestClient, name: str, content: bytes, status: int, told: str
) -> None:
    answer = translated(client, name, content)
    assert answer.status_code == status
    assert told in answer.json()["error"]
    assert "/tmp" not in answer.json()["error"]  # noqa: S108


@pytest.mark.parametrize("name", ["../../../etc/passwd", "%2e%2e%2fetc%2fpasswd", "x.txt", ""])
def test_names_of_files_reach_no_file_system(client: TestClient, name: str) -> None:
    assert client.get(f"/download_file/{name}").status_code == 404


def test_files_are_deleted_after_a_time(models: FakeModels) -> None:
    with client_of(models, limits=ServingLimits(kept=0.0)) as client:
        address = translated(client, "a.txt", b"word\n").json()["translatedFileUrl"]
        assert client.get(address).status_code == 404


# Mistakes


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"q": ""}, "Invalid request: missing q parameter"),
        ({"q": []}, "Invalid request: missing q parameter"),
        ({"q": [1]}, "Invalid request: q must be a text or a list of texts"),
        ({"q": {"a": 1}}, "Invalid request: q must be a text or a list of texts"),
        ({"source": ""}, "Invalid request: missing source parameter"),
        ({"target": None}, "Invalid request: missing target parameter"),
        ({"source": "zz"}, "zz is not supported"),
        ({"target": "zz"}, "zz is not supported"),
        ({"source": "auto", "target": "zz"}, "zz is not supported"),
        ({"format": "xml"}, "xml format is not supported"),
        ({"q": "x" * 201}, "Invalid request: request (201) exceeds text limit (200)"),
        ({"q": ["x"] * 21}, "Invalid request: request (21) exceeds text limit (20)"),
        ({"alternatives": "many"}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": [1]}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": 4}, "Invalid request: alternatives parameter must be <= 3"),
        ({"alternatives": -1}, "Invalid request: alternatives: expected int >= 0"),
        ({"scores": "perhaps"}, "Invalid request: scores: expected bool, got str"),
        ({"source": "de", "target": "fr"}, "French (fr) is not available as a target language from German (de)"),
    ],
)
def test_errors_have_the_messages_that_clients_know(client: TestClient, values: dict[str, Any], told: str) -> None:
    answer = client.post("/translate", json=asked(**values))
    assert (answer.status_code, answer.json()) == (400, {"error": told})


def test_json_of_a_named_kind_is_read(client: TestClient) -> None:
    content = json.dumps(asked()).encode()
    answers = [
        client.post("/translate", content=content, headers={"Content-Type": kind})
        for kind in ("application/json; charset=utf-8", "application/vnd.api+json", "text/plain")
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 400]


@pytest.mark.parametrize("body", [b"[]", b"nothing", b'"q"', b"", b"[" * 10_000, b"\xff"])
def test_a_body_that_is_no_object_is_refused(client: TestClient, body: bytes) -> None:
    answer = client.post("/translate", content=body, headers=JSON)
    assert (answer.status_code, answer.json()) == (400, {"error": "Invalid JSON format"})


def test_a_form_that_is_none_is_refused(client: TestClient) -> None:
    answer = client.post("/translate", content=b"x", headers={"Content-Type": "multipart/form-data; boundary=y"})
    assert answer.status_code == 400
    assert "error" in answer.json()
    assert client.post("/translate_file", data={"source": "en", "target": "de"}).json() == {
        "error": "Invalid request: missing file parameter"
    }


def test_unknown_addresses_are_answered_in_html(client: TestClient) -> None:
    for answer, status in ((client.get("/nowhere"), 404), (client.get("/translate"), 405)):
        assert answer.status_code == status
        assert answer.headers["content-type"].startswith("text/html")


def test_a_full_queue_and_a_late_answer_never_are_503(client: TestClient, models: FakeModels) -> None:
    queue = models.queue(Direction("en", "de"))
    queue.error = BusyError("full", 2.3)
    answer = client.post("/translate", json=asked())
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
    assert answer.json()["error"].startswith("Slowdown: ")
    assert client.post("/translate", json=asked(q="%s files")).status_code == 429
    queue.error = LateError("late")
    assert client.post("/translate", json=asked()).status_code == 504


# The rest


def test_the_settings_that_a_page_needs(client: TestClient) -> None:
    told = client.get("/frontend/settings").json()
    assert told["charLimit"] == 200
    assert not told["keyRequired"]
    assert {".po", ".txt", ".srt", ".md"} <= set(told["supportedFilesFormat"])
    assert told["language"]["source"] == {"code": "auto", "name": "Auto Detect"}
    assert client.get("/health").json() == {"status": "ok"}
    answer = client.post("/suggest", data={"q": "a", "s": "b", "source": "en", "target": "de"})
    assert (answer.status_code, "error" in answer.json()) == (403, True)


def test_every_address_is_in_the_specification(client: TestClient) -> None:
    paths = client.get("/spec").json()["paths"]
    assert set(paths) >= {"/translate", "/detect", "/languages", "/translate_file", "/suggest", "/health"}
    page = client.get("/docs").text
    assert all(path in page for path in paths)


def test_weblates_question_is_answered_if_that_is_wanted(models: FakeModels) -> None:
    question = {"api_key": "", "q": ["test"], "source": "en", "target": "de"}
    french = FakeModels("fr-en")
    with client_of(french) as client:
        assert client.post("/translate", json=question).json() == {"error": "de is not supported"}
    with client_of(french, weblate_probe=True) as client:
        assert client.post("/translate", json=question).json() == {"translatedText": ["test"]}
        assert client.post("/translate", json={**question, "q": ["other"]}).status_code == 400
    with client_of(models, weblate_probe=True) as client:
        assert client.post("/translate", json=question).json() == {"translatedText": ["TEST@de"]}


def test_mastodons_question(client: TestClient) -> None:
    question = {
        "q": ["<p>The dog and the cat</p>", ""],
        "source": "auto",
        "target": "de",
        "format": "html",
        "api_key": "",
    }
    answer = client.post("/translate", content=json.dumps(question), headers=JSON).json()
    assert answer["translatedText"] == ["<p>THE DOG AND THE CAT@de</p>", ""]
    assert [each["language"] for each in answer["detectedLanguage"]] == ["en", "en"]


OTHER_ORIGINS = ("https://evil.example", "null", "http://localhost:1", "http://[")


def test_pages_of_other_origins_are_refused_unless_the_operator_permits_them(models: FakeModels) -> None:
    with client_of(models) as client:
        for origin in OTHER_ORIGINS:
            for method, path in (("OPTIONS", "/translate"), ("GET", "/languages"), ("POST", "/translate")):
                answer = client.request(method, path, headers={"Origin": origin})
                assert answer.status_code == 403, origin
                assert not [name for name in answer.headers if name.startswith("access-control")]
        for own in ({}, {"Origin": "http://localhost:5000"}):
            answer = client.get("/languages", headers=own)
            assert answer.status_code == 200
            assert "access-control-allow-origin" not in answer.headers
    with client_of(models, hosts=["translate.example"]) as client:
        assert client.get("/languages", headers={"Origin": "https://translate.example"}).status_code == 200
        assert client.get("/languages", headers={"Origin": "https://evil.example"}).status_code == 403
    with client_of(models, origin="*") as client:
        for answer in (
            client.options("/translate"),
            client.get("/languages", headers={"Origin": "https://other.example"}),
            client.post("/translate"),
            client.get("/no"),
        ):
            assert answer.status_code != 403
            assert answer.headers["access-control-allow-origin"] == "*"
            assert answer.headers["access-control-allow-headers"] == "Authorization, Content-Type"
            assert answer.headers["access-control-max-age"] == "1728000"
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
