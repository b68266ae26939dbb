"""Notations that no setting declares: each is named by its kind in the custodian's statement."""

from __future__ import annotations

import pytest

from tests.support.statements import frame_of, stated

SIGN, BRACKETS = "a sign behind the number", "brackets around the number"
APART = "a sign apart from the number, or an unusual one"
MARKS = "other marks than the digits and signs of a plain value"
PERCENT, CURRENCY = "a percent sign", "a currency sign"
LETTERS, DIGITS = "letters before or behind the number", "digits of another script"
SERIAL, MONTH = "the serial number of a spreadsheet", "a month's name"
SHORT_YEAR, CLOCK = "a year of two digits", "a clock of twelve hours"
ZONE = "the name of a time zone"
SINCE_1970, NO_DAY = "seconds or milliseconds since 1970", "without a day"


@pytest.mark.parametrize(
    ("columns", "cell", "notation"),
    [
        *(("income n", cell, SIGN) for cell in ("12-", "1.234,5-", "12 -", "7\u2212")),
        *(("income n", cell, APART) for cell in ("- 12", "\u2212 7", "\u201412", "\u207b12")),
        *(("income n", cell, MARKS) for cell in ("3+", "5.-", "5,\u2013", "<5", "~7", "1_000",
                                                 "1/2", "\xbd", "\u200e-5", "12,34,567.00", "(12")),
        *(("d t", cell, MARKS) for cell in ("443", "-1", "2021\u5e743\u67085\u65e5", "0000-00-00",
                                            "2021\u221203\u221205")),
        *(("d t", cell, DIGITS) for cell in ("\uff12\uff10\uff12\uff11-03-05",)),
        *(("income n", cell, BRACKETS) for cell in ("(12)", "(1,234.50)", "( 7 )")),
        *(("income n", cell, PERCENT) for cell in ("12%", "12 %", "1,5\u2030", "12\uff05")),
        *(("income n", cell, CURRENCY) for cell in ("12 \u20ac", "$12", "\uffe512", "-\xa312")),
        *(("income n", cell, LETTERS) for cell in ("12 EUR", "kr 12", "12kg", "CHF 1'200.50")),
        *(("income n", cell, DIGITS) for cell in ("\uff11\uff12", "\u0661\u0662")),
        *(("d", cell, SERIAL) for cell in ("45373", "45373.5", "12345,25")),
        *(("d t", cell, MONTH) for cell in ("05mar2021", "5-Mar-21", "Mar 5, 2021",
                                            "5. M\xe4rz 2021", "05MAR2021:10:00:00",
                                            "5-d\xe9c.-2021")),
        *(("d t", cell, SHORT_YEAR) for cell in ("05.03.21", "3/5/21", "05-03-21", "050321",
                                                 "05.03.21 10:00")),
        *(("d t", cell, CLOCK) for cell in ("03/05/2021 10:00 PM", "2021-03-05 9:30 a.m.")),
        *(("d t", cell, ZONE) for cell in ("2021-03-05 10:00:00 UTC", "2021-03-05T10:00:00.5 CET",
                                           "05.03.2021 10:00 Europe/Berlin")),
        *(("d t", cell, SINCE_1970) for cell in ("1614902400", "1614902400000")),
        *(("d t", cell, NO_DAY) for cell in ("2021", "2021/03", "03/2021")),
    ],
)  # fmt: skip
def test_a_notation_that_nothing_declares_is_named_by_its_kind(columns, cell, notation):
    for column in columns.split():
        text = stated(frame_of(**{column: [cell, cell]}))
        assert (
            f"1 have {notation}" in text
            or f"1 have a year, or a year and a month, {notation}" in text
        )
        assert text.count("no setting reads it") == 1
        assert ("not a random part" in text) == (notation in (SIGN, APART, BRACKETS))
