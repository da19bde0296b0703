"""Languages as clients name them: codes in any spelling, two generations of them, and English names."""

from __future__ import annotations

from collections.abc import Iterable

NEWER = {"zh": "zh-Hans", "zt": "zh-Hant", "pb": "pt-BR"}
"""Codes that clients have been using, and what they are called now; both are understood."""


def public(code: str) -> str:
    """A model's language as clients are told it: pt_BR is pt-BR, and zh is zh-Hans."""
    plain = code.replace("_", "-")
    return NEWER.get(plain.lower(), plain)


def find(asked: str, known: Iterable[str]) -> str | None:
    """The one of these languages that a client means, if there is one: de where de-AT is not there, pt-BR for pt."""
    wanted, there = public(asked.strip()).lower(), {public(code).lower(): code for code in known}
    if wanted in there:
        return there[wanted]
    alike = (code for name, code in there.items() if wanted.startswith(f"{name}-") or name.startswith(f"{wanted}-"))
    return next(alike, None)


def name(code: str) -> str:
    """The English name of a language; its code where that is not known."""
    shown = public(code)
    return NAMES.get(shown.lower()) or NAMES.get(shown.partition("-")[0].lower()) or shown


NAMES = {
    "af": "Afrikaans",
    "am": "Amharic",
    "ar": "Arabic",
    "az": "Azerbaijani",
    "be": "Belarusian",
    "bg": "Bulgarian",
    "bn": "Bengali",
    "br": "Breton",
    "bs": "Bosnian",
    "ca": "Catalan",
    "cs": "Czech",
    "cy": "Welsh",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "eo": "Esperanto",
    "es": "Spanish",
    "et": "Estonian",
    "eu": "Basque",
    "fa": "Persian",
    "fi": "Finnish",
    "fil": "Filipino",
    "fr": "French",
    "ga": "Irish",
    "gl": "Galician",
    "gu": "Gujarati",
    "he": "Hebrew",
    "hi": "Hindi",
    "hr": "Croatian",
    "hu": "Hungarian",
    "hy": "Armenian",
    "id": "Indonesian",
    "is": "Icelandic",
    "it": "Italian",
    "ja": "Japanese",
    "ka": "Georgian",
    "kk": "Kazakh",
    "km": "Khmer",
    "kn": "Kannada",
    "ko": "Korean",
    "la": "Latin",
    "lo": "Lao",
    "lt": "Lithuanian",
    "lv": "Latvian",
    "mk": "Macedonian",
    "ml": "Malayalam",
    "mn": "Mongolian",
    "mr": "Marathi",
    "ms": "Malay",
    "mt": "Maltese",
    "my": "Burmese",
    "nb": "Norwegian Bokmål",
    "ne": "Nepali",
    "nl": "Dutch",
    "nn": "Norwegian Nynorsk",
    "no": "Norwegian",
    "pa": "Punjabi",
    "pl": "Polish",
    "pt": "Portuguese",
    "pt-br": "Portuguese (Brazil)",
    "ro": "Romanian",
    "ru": "Russian",
    "si": "Sinhala",
    "sk": "Slovak",
    "sl": "Slovenian",
    "sq": "Albanian",
    "sr": "Serbian",
    "sv": "Swedish",
    "sw": "Swahili",
    "ta": "Tamil",
    "te": "Telugu",
    "th": "Thai",
    "tl": "Tagalog",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "ur": "Urdu",
    "uz": "Uzbek",
    "vi": "Vietnamese",
    "yi": "Yiddish",
    "zh-hans": "Chinese",
    "zh-hant": "Chinese (traditional)",
}
