"""The line, the checksum that runs through a log, and reading it back whatever happened to it."""

from __future__ import annotations

import json
import string
import unicodedata
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.errors import InvalidId, NewerFormat
from hansard.ids import check_id, file_key, id_of, new_id
from hansard.records import (
    TAIL,
    Draft,
    Record,
    Scan,
    equal,
    frame,
    freeze,
    last,
    parse,
    scan,
    seal,
    state_after,
    utc,
)

AT = datetime(2026, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def draft(data: Any, *, kind: str = "message", id: str | None = None) -> Draft:
    return Draft(kind=kind, data=msgspec.Raw(freeze(data)[0]), id=id, at=AT)


def said(text: str) -> Draft:
    return draft({"role": "user", "content": text})


class Written:
    """A log as it is written, and where everything stands in it."""

    def __init__(self, *writes: list[Draft]) -> None:
        self.data = b""
        self.ends: list[tuple[int, int]] = [(0, -1)]  # after each write: the length, the last seq
        state, seq = 0, -1
        for drafts in writes:
            lines, state = frame(drafts, seq + 1, state)
            self.data += lines
            seq += len(drafts)
            self.ends.append((len(self.data), seq))
        self.lines = self.data.splitlines(keepends=True)
        self.records = list(scan([self.data]))
        assert len(self.records) == len(self.lines) == seq + 1

    def owner(self, offset: int) -> int:
        """The record whose line has this byte."""
        for seq, line in enumerate(self.lines):
            offset -= len(line)
            if offset < 0:
                return seq
        raise IndexError(offset)


def small() -> Written:
    """Single records and batches by turns; `J` and `*` are one bit away from a newline."""
    return Written(
        [draft({"id": "s", "uid": "0123456789abcdef", "format": 1}, kind="session")],
        [said("Jam * jelly")],
        [draft({"any": 1}, kind="app.note", id="once")],
        [said("one"), said("two"), said("three")],
        [said("four")],
        [said("five"), said("six")],
        [said("seven")],
    )


def read(data: bytes) -> tuple[list[Record], Scan]:
    reader = Scan()
    return list(scan([data], reader)), reader


# -- lines


@given(JSON_VALUES)
def test_what_is_written_into_a_line_is_read_back_equal(data: Any) -> None:
    written = Written([draft(data)])
    assert written.records[0].data == data
    assert written.data.count(b"\n") == 1


def test_a_line_is_compact_json_that_ends_in_at_seq_and_sum() -> None:
    line = small().lines[1]
    members = json.loads(line)
    assert list(members) == ["kind", "data", "at", "seq", "sum"]
    assert line == json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def test_sum_is_the_checksum_of_all_bytes_of_the_file_before_it() -> None:
    written = small()
    before = 0
    for line in written.lines:
        place = before + line.index(b',"sum":"')
        assert json.loads(line)["sum"] == f"{crc32(written.data[:place]):08x}"
        before += len(line)


def test_a_writer_goes_on_from_the_last_hundred_bytes() -> None:
    written = small()
    for length, seq in written.ends[1:]:
        found = last(written.data[max(0, length - TAIL) : length])
        assert found == (seq, crc32(written.data[:length]))


def test_the_end_of_a_log_inside_a_batch_is_not_taken_for_the_end_of_a_write() -> None:
    written = small()
    inside = sum(map(len, written.lines[:5]))
    assert last(written.data[:inside][-TAIL:]) is None


@pytest.mark.parametrize("end", [b"", b"\n", b"}\n", b'"sum":"00000000"}\n', b"\0" * 160])
def test_an_illegible_end_says_nothing(end: bytes) -> None:
    assert last(end) is None


@pytest.mark.parametrize("end", [b"", b"\n", b',"sum":"0000000g"}\n', b',"sum":"00000000"}'])
def test_the_checksum_goes_on_only_after_a_sealed_line(end: bytes) -> None:
    assert state_after(end) is None


def test_members_of_a_newer_version_are_kept() -> None:
    record = parse(
        b'{"kind":"message","data":1,"mood":{"a":[1]},"at":"2026-05-01T12:00:00Z","seq":4,"sum":"0"}'
    )
    assert record.extra == {"mood": {"a": [1]}}
    assert record.seq == 4


def test_a_line_with_members_of_a_newer_version_reads_as_any_other() -> None:
    front = b'{"kind":"message","data":1,"mood":"good","at":"2026-05-01T12:00:00Z","seq":0}'
    first, state = seal(front, 0)
    lines, _ = frame([said("after")], 1, state)
    records, reader = read(first + lines)
    assert [record.seq for record in records] == [0, 1]
    assert records[0].extra == {"mood": "good"}
    assert reader.damage == []


@pytest.mark.rule("W14")
def test_a_kind_that_must_be_understood_and_is_not_stops_the_reader() -> None:
    with pytest.raises(NewerFormat, match="!sealed"):
        read(small().data[: small().ends[1][0]] + _line({"x": 1}, "!sealed", small(), 1))


def test_a_kind_that_is_not_known_is_kept() -> None:
    records, reader = read(small().data[: small().ends[1][0]] + _line({"x": 1}, "whisper", small(), 1))
    assert [(record.kind, record.data) for record in records[1:]] == [("whisper", {"x": 1})]
    assert reader.damage == []


def _line(data: Any, kind: str, after: Written, writes: int) -> bytes:
    length, seq = after.ends[writes]
    return frame([draft(data, kind=kind)], seq + 1, crc32(after.data[:length]))[0]


@given(st.lists(st.integers(1, 200), max_size=40))
def test_a_log_reads_the_same_in_pieces_of_any_size(sizes: list[int]) -> None:
    written = small()
    reader = Scan()
    records: list[Record] = []
    at = 0
    for size in [*sizes, len(written.data)]:
        records += reader.feed(written.data[at : at + size])
        at += size
    records += reader.finish()
    assert records == written.records
    assert (reader.end, reader.seq, reader.torn) == (len(written.data), len(records) - 1, 0)
    assert reader.state == crc32(written.data)
    assert reader.damage == []


def test_reading_can_go_on_from_the_end_of_any_write() -> None:
    written = small()
    for length, seq in written.ends:
        state = state_after(written.data[:length][-19:]) if length else 0
        reader = Scan(length, state, seq)
        assert list(scan([written.data[length:]], reader)) == written.records[seq + 1 :]
        assert reader.damage == []


# -- torn tails


@pytest.mark.rule("C1", "W2")
def test_a_log_cut_at_any_byte_gives_every_whole_write_and_no_other() -> None:
    written = small()
    for cut in range(len(written.data) + 1):
        records, reader = read(written.data[:cut])
        # a write whose last newline alone is missing is whole
        length, seq = max(end for end in written.ends if end[0] <= cut or (end[0] and end[0] - 1 == cut))
        assert records == written.records[: seq + 1], cut
        assert reader.end == min(length, cut)
        assert reader.unterminated == (cut == length - 1)
        assert reader.torn == cut - reader.end
        assert reader.damage == []


@pytest.mark.rule("C1")
@pytest.mark.parametrize(
    "tail", [b"\0" * 700, b"\xff" * 30, b"\n\n\n", b'{"kind":"message"}\n', b"half a line"]
)
def test_what_a_power_cut_left_behind_the_last_record_is_a_torn_tail(tail: bytes) -> None:
    written = small()
    records, reader = read(written.data + tail)
    assert records == written.records
    assert (reader.end, reader.torn) == (len(written.data), len(tail))


@pytest.mark.rule("W2", "C2")
def test_a_batch_of_which_a_line_is_missing_is_shown_not_at_all() -> None:
    written = small()
    for missing in (3, 4, 5):
        records, reader = read(b"".join(written.lines[:missing] + written.lines[missing + 1 :]))
        assert [record.seq for record in records] == [0, 1, 2, 6, 7, 8, 9]
        assert {wrong.kind for wrong in reader.damage} & {"batch", "gap"}
        assert all(2 <= wrong.seq <= 6 for wrong in reader.damage)


# -- damage in the middle


@pytest.mark.rule("C2")
def test_a_flipped_bit_anywhere_costs_one_write_at_most_and_is_located() -> None:
    written = small()
    lost_with = {3: {3, 4, 5}, 4: {3, 4, 5}, 5: {3, 4, 5}, 7: {7, 8}, 8: {7, 8}}
    final = len(written.lines) - 1
    wrong: list[str] = []
    for offset in range(len(written.data)):
        owner = written.owner(offset)
        lost = lost_with.get(owner, {owner})
        if written.data[offset : offset + 1] == b"\n" and owner != final:
            lost = set()  # where one line ends and the next begins can be told all the same
        expected = [record for record in written.records if record.seq not in lost]
        for bit in range(8):
            data = bytearray(written.data)
            data[offset] ^= 1 << bit
            try:
                records, reader = read(bytes(data))
            except NewerFormat as error:
                wrong.append(f"byte {offset}, bit {bit}: {error}")
                continue
            located = any(w.offset <= offset <= w.offset + w.length for w in reader.damage)
            if records != expected or not (reader.torn if owner == final else located):
                found = [record.seq for record in records]
                wrong.append(f"byte {offset}, bit {bit}, in record {owner}: {found}, {reader.damage}")
    assert wrong == []


@pytest.mark.rule("C2")
@pytest.mark.parametrize(
    "garbage",
    [
        b"\n",
        b"   \t\n",
        b"\r\n",
        b"\0" * 4096 + b"\n",
        b"garbage\n",
        b"\xff\xfe\xfd\n",
        b"{}\n",
        b"null\n",
        b"[" * 100_000 + b"\n",
        b'{"kind":"message","data":1,"at":"2026-05-01T12:00:00Z","seq":3,"sum":"00000000"}\n',
    ],
)
def test_a_line_of_garbage_between_two_records_costs_neither(garbage: bytes) -> None:
    written = small()
    start = 0
    for seq, line in enumerate(written.lines):
        inside_batch = seq in (4, 5, 8)
        records, reader = read(written.data[:start] + garbage + written.data[start:])
        if not inside_batch:
            assert records == written.records, seq
        assert len(reader.damage) >= 1
        assert reader.damage[0].offset == start
        start += len(line)


@pytest.mark.rule("C2")
def test_an_illegible_line_costs_itself_alone() -> None:
    written = small()
    for seq in (0, 1, 2, 6):
        lines = list(written.lines)
        lines[seq] = b"x" * (len(lines[seq]) - 1) + b"\n"
        records, reader = read(b"".join(lines))
        assert [record.seq for record in records] == [n for n in range(10) if n != seq]
        assert reader.damage[0].offset == sum(map(len, written.lines[:seq]))
        assert any("unverified" in wrong.kind for wrong in reader.damage)


@pytest.mark.rule("C2")
def test_line_ends_that_an_editor_changed_cost_nothing() -> None:
    written = small()
    records, reader = read(written.data.replace(b"\n", b"\r\n"))
    assert records == written.records
    assert {wrong.kind for wrong in reader.damage} == {"line-end"}
    assert len(reader.damage) == len(written.lines)


@pytest.mark.rule("C2")
def test_a_doubled_line_is_given_once() -> None:
    written = small()
    for seq in (0, 1, 2, 6, 9):
        lines = list(written.lines)
        lines.insert(seq, lines[seq])
        records, reader = read(b"".join(lines))
        assert records == written.records, seq
        if seq < 9:  # at the end it is a torn tail
            assert any(w.offset == sum(map(len, lines[: seq + 1])) for w in reader.damage)


@pytest.mark.rule("C2")
def test_a_missing_line_is_reported_as_a_gap() -> None:
    written = small()
    records, reader = read(b"".join(written.lines[:2] + written.lines[3:]))
    assert [record.seq for record in records] == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    assert any(wrong.seq == 1 for wrong in reader.damage)


@pytest.mark.rule("C2")
def test_swapped_lines_cost_no_third_one() -> None:
    written = Written(*[[said(f"message {n}")] for n in range(8)])
    for seq in range(6):
        lines = list(written.lines)
        lines[seq], lines[seq + 1] = lines[seq + 1], lines[seq]
        records, reader = read(b"".join(lines))
        found = [record.seq for record in records]
        assert found == sorted(set(found))
        assert set(range(8)) - set(found) <= {seq, seq + 1}
        assert reader.damage


@pytest.mark.rule("C2")
def test_a_line_that_lost_its_newline_costs_no_other() -> None:
    written = small()
    for seq in (0, 1, 2, 6):
        lines = list(written.lines)
        lines[seq] = lines[seq][:-1]
        records, reader = read(b"".join(lines))
        assert set(range(10)) - {record.seq for record in records} <= {seq}, seq
        assert reader.damage


@pytest.mark.rule("C2")
def test_a_line_with_a_wrong_number_hides_nothing_that_comes_after_it() -> None:
    """Also where the next line, which would tell, cannot be read."""
    written = small()
    lines = list(written.lines)
    lines[1] = lines[1].replace(b'"seq":1', b'"seq":91')
    lines[2] = b"garbage\n"
    records, reader = read(b"".join(lines))
    assert [record.seq for record in records] == [0, *range(3, 10)]
    assert {"altered", "illegible", "gap"} <= {wrong.kind for wrong in reader.damage}


@pytest.mark.rule("W2", "C2")
def test_a_line_that_has_run_into_the_next_one_does_not_complete_its_batch() -> None:
    """What is left of the two has the batch of the first and the number of the second."""
    written = small()
    lines = list(written.lines)
    lines[5] = lines[5].partition(b',"seq"')[0] + b',"d":' + lines[6].partition(b'"data":')[2]
    records, reader = read(b"".join([*lines[:6], *lines[7:]]))
    assert [record.seq for record in records] == [0, 1, 2, 7, 8, 9]
    assert "batch" in {wrong.kind for wrong in reader.damage}


@pytest.mark.rule("C2")
def test_a_line_behind_a_missing_one_and_before_an_illegible_one_is_shown() -> None:
    written = small()
    records, reader = read(b"".join([*written.lines[:1], written.lines[2], b"garbage\n", *written.lines[6:]]))
    assert [record.seq for record in records] == [0, 2, 6, 7, 8, 9]
    assert [wrong.kind for wrong in reader.damage] == ["unverified", "gap", "illegible", "unverified", "gap"]
    assert [wrong.seq for wrong in reader.damage] == [0, 0, 2, 2, 2]


@pytest.mark.rule("C1", "C2")
def test_a_last_line_without_its_newline_counts_behind_one_that_follows_a_missing_one() -> None:
    written = Written(*[[said(f"message {n}")] for n in range(8)])
    records, reader = read(b"".join([*written.lines[:5], *written.lines[6:]])[:-1])
    assert [record.seq for record in records] == [0, 1, 2, 3, 4, 6, 7]
    assert (reader.unterminated, reader.torn) == (True, 0)


@pytest.mark.rule("C2")
@pytest.mark.parametrize(
    ("member", "instead"),
    [
        (b'"seq":3', b'"seq":-3'),
        (b'"seq":3', b'"seq":9007199254740992'),
        (b'"seq":3', b'"seq":99999999999999999999'),
        (b'Z"', b'"'),
    ],
)
def test_a_line_with_a_number_or_time_that_no_record_has_is_illegible(member: bytes, instead: bytes) -> None:
    written = Written(*[[said(f"message {n}")] for n in range(8)])
    lines = list(written.lines)
    lines[2] = b"garbage\n"  # the line behind it is taken as it reads
    lines[3] = lines[3].replace(member, instead)
    records, reader = read(b"".join(lines))
    assert [record.seq for record in records] == [0, 1, 4, 5, 6, 7]
    assert [wrong.kind for wrong in reader.damage][:2] == ["illegible", "illegible"]


@given(st.data())
def test_nothing_that_happens_to_a_log_makes_a_reader_fail_or_invent(data: st.DataObject) -> None:
    written = small()
    mangled = bytearray(written.data)
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(mangled)))
        match data.draw(st.sampled_from(["change", "insert", "remove", "copy"])):
            case "change":
                piece = data.draw(st.binary(max_size=20))
                mangled[at : at + len(piece)] = piece
            case "insert":
                mangled[at:at] = data.draw(st.binary(max_size=20))
            case "remove":
                del mangled[at : at + data.draw(st.integers(0, 400))]
            case "copy":
                source = data.draw(st.integers(0, len(mangled)))
                mangled[at:at] = mangled[source : source + 300]
    records, reader = read(bytes(mangled))
    seqs = [record.seq for record in records]
    assert seqs == sorted(set(seqs))
    doubted = any(wrong.kind == "unverified" for wrong in reader.damage)
    assert all(doubted or record == written.records[record.seq] for record in records)
    assert reader.end + reader.torn == len(mangled)


@given(st.binary(max_size=400))
def test_bytes_that_are_no_log_give_no_record(data: bytes) -> None:
    records, reader = read(data)
    assert records == []
    assert reader.end + reader.torn == len(data)


# -- values


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (b'{"a":1,"b":2}', b'{"b":2,"a":1}', True),
        (b'{"a":[1,2]}', b'{"a":[2,1]}', False),
        (b"1", b"true", False),
        (b"0", b"false", False),
        (b'"1"', b"1", False),
        (b"null", b"{}", False),
    ],
)
def test_equal_compares_values_and_not_their_spelling(one: bytes, other: bytes, same: bool) -> None:
    assert equal(one, other) is same


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        utc(datetime(2026, 5, 1))
    assert utc(AT.astimezone(timezone(timedelta(hours=-7)))) == AT


# -- ids and file keys


@pytest.mark.rule("I1")
def test_a_generated_id_is_sixteen_characters_of_crockford_base_32() -> None:
    made = {new_id() for _ in range(200)}
    assert len(made) == 200
    for id in made:
        assert id.startswith("sess_")
        assert len(id) == 21
        assert set(id[5:]) <= set(string.digits + "abcdefghjkmnpqrstvwxyz")
        assert file_key(id) == id


VALID_IDS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=512).filter(
    str.strip
)


@pytest.mark.rule("I2")
@given(VALID_IDS)
def test_a_file_key_is_a_plain_name_that_no_file_system_changes(id: str) -> None:
    key = file_key(check_id(id))
    assert set(key) <= set(string.ascii_lowercase + string.digits + "_-.=~")
    assert 0 < len(key) <= 200
    assert key[0] != "."
    assert key[-1] != "."
    assert id_of(key) == (None if "=~" in key else id)


@pytest.mark.rule("I2")
@given(st.lists(VALID_IDS, min_size=2, max_size=20, unique=True))
def test_two_ids_never_share_a_file(ids: list[str]) -> None:
    assert len({file_key(id) for id in ids}) == len(ids)


@pytest.mark.rule("I2")
def test_ids_that_look_alike_have_keys_of_their_own() -> None:
    alike = [
        "a:b",
        "a/b",
        "a\\b",
        "a_b",
        "A:b",
        "a.b",
        "a.b.",
        "a.b ",
        " a.b",
        ".a.b",
        "..",
        ".",
        "a=2fb",
        "a=~b",
    ]
    alike += [
        "~",
        "CON",
        "con",
        "é",
        unicodedata.normalize("NFD", "é"),
        "É",
        "ﬁ",
        "fi",
        "ß",
        "ss",
        "SS",
        "İ",
        "i̇",
    ]
    alike += ["x" * 200, "x" * 201, "X" * 200, "é" * 400, "é" * 401, "a\N{ZERO WIDTH SPACE}", "a"]
    keys = {file_key(id) for id in alike}
    assert len(keys) == len(alike)
    assert len({unicodedata.normalize("NFKC", key).casefold() for key in keys}) == len(alike)


@pytest.mark.rule("I2")
@pytest.mark.parametrize("key", ["", "A", "a=2F", "a=", "a=6", "a=61", "a b", "é", "a=ff", "..", ".a", "a."])
def test_a_file_name_that_we_would_not_give_is_no_key(key: str) -> None:
    assert id_of(key) is None


@pytest.mark.rule("I2")
@pytest.mark.parametrize(
    "id", ["", " ", "\N{NO-BREAK SPACE}", "a\n", "\0", "a\x7fb", "\ud800", "x" * 513, None, 1, b"a"]
)
def test_what_is_no_id_is_refused(id: object) -> None:
    with pytest.raises(InvalidId):
        check_id(id)
