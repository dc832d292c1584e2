"""Text that nobody described: separator, header, quotes, encoding, dtypes and missing values told from the file."""

from __future__ import annotations

import gzip
import io
import lzma
import warnings
import zipfile
from pathlib import Path

import polars as pl
import pytest

from penstock import ColumnSchema, Dataset, Schema
from penstock.core.errors import ColumnNotFoundError, DataError, ParameterError, SchemaError


def file_of(tmp_path: Path, text: str | bytes, name: str = "clicks.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


ROWS = [("ann", 3, 0.5), ("bob", 4, 1.25), ("cat", 5, 2.0)]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".txt", ".data", ""])
@pytest.mark.parametrize("separator", [",", "\t", ";", "|"])
@pytest.mark.parametrize("header", [True, False])
def test_separator_and_header_are_told_from_the_lines(tmp_path, suffix, separator, header):
    lines = [separator.join(map(str, row)) for row in ROWS]
    names = ["user", "age", "price"] if header else ["column_1", "column_2", "column_3"]
    text = "\n".join([separator.join(names)] * header + lines) + "\n"
    data = Dataset(file_of(tmp_path, text, f"clicks{suffix}"))
    assert data.schema.names == names
    assert data.to_polars().rows() == ROWS
    assert data.layout.assumed[0] == f"separator {separator!r}"
    assert ("a header" in data.layout.assumed) == header


@pytest.mark.parametrize("separator", ["\t", ";", "|"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_quotes_with_any_separator(tmp_path, separator, suffix):
    text = f'id{separator}title\n1{separator}"a{separator}b ""c"""\n2{separator}"two\nlines"\n'
    expected = [(1, f'a{separator}b "c"'), (2, "two\nlines")]
    path = file_of(tmp_path, text, f"x{suffix}")
    assert Dataset(path).to_polars().rows() == expected
    assert Dataset(path, separator=separator, quote='"', header=True).to_polars().rows() == expected


def test_quotes_can_mean_nothing(tmp_path):
    path = file_of(tmp_path, 'id,size\n1,5" pipe\n2,6" pipe\n')
    assert Dataset(path, quote="").to_polars()["size"].to_list() == ['5" pipe', '6" pipe']
    with pytest.raises(ParameterError, match="quote must be one ASCII character"):
        Dataset(path, quote="''")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
@pytest.mark.parametrize("header", [True, False])
def test_encodings(tmp_path, encoding, header):
    lines = ["name;age"] * header + ["café;3", "Zoë;4", "plain;5"]
    path = file_of(tmp_path, "\n".join(lines).encode(encoding))
    frame = Dataset(path).to_polars()
    assert frame.rows() == [("café", 3), ("Zoë", 4), ("plain", 5)]
    assert frame.columns == (["name", "age"] if header else ["column_1", "column_2"])
    assert Dataset(path, encoding=encoding).to_polars().equals(frame)


def test_an_encoding_that_is_said_and_wrong_is_an_error(tmp_path):
    path = file_of(tmp_path, "name;age\ncafé;3\n".encode("cp1252"))
    with pytest.raises(DataError, match=r"clicks\.csv, line 2: bytes that are no UTF-8"):
        Dataset(path, encoding="utf-8").to_polars()
    with pytest.raises(DataError, match=r"clicks\.csv is not utf-16.*encoding="):
        Dataset(path, encoding="utf-16").to_polars()
    with pytest.raises(ParameterError, match="'latin-99'"):
        Dataset(path, encoding="latin-99")


def test_integers_beyond_int64_open(tmp_path):
    path = file_of(tmp_path, "id,click\n10000169349117863715,1\n1000009418151094273,0\n")
    data = Dataset(path)
    assert data.schema["id"].dtype == "uint64"
    assert data.to_polars()["id"].to_list() == [10000169349117863715, 1000009418151094273]
    path = file_of(tmp_path, f"id,click\n{10**30},1\n-{10**25},0\n")
    assert Dataset(path).to_polars()["id"].to_list() == [str(10**30), str(-(10**25))]


@pytest.mark.parametrize("dtype", ["string", "uint64", "float64"])
def test_given_dtypes_decide_before_inferred_ones_are_judged(tmp_path, dtype):
    path = file_of(tmp_path, "id,click\n10000169349117863715,1\n5,0\n")
    data = Dataset(path, dtypes={"id": dtype})
    assert data.schema["id"].dtype == dtype
    assert data.to_polars()["id"].cast(pl.String)[1] in ("5", "5.0")
    with pytest.raises(DataError, match=r"clicks\.csv, line 2: column 'id'"):
        Dataset(path, dtypes={"id": "int64"}).to_polars()


def test_leading_zeros_stay(tmp_path):
    path = file_of(tmp_path, "zip,n\n00501,0\n10001,10\n")
    assert Dataset(path).to_polars().rows() == [("00501", 0), ("10001", 10)]


@pytest.mark.parametrize(
    "word", ["NA", "null", "\\N", "NaN", "?", "-", "None", " ", "   ", "#N/A", "<NA>", "unknown", "#DIV/0!"]
)
def test_words_for_nothing_in_columns_of_numbers(tmp_path, word):
    path = file_of(tmp_path, f"age,name\n3,{word}\n{word},b\n5,c\n")
    data = Dataset(path)
    assert data.to_polars().rows() == [(3, word), (None, "b"), (5, "c")]
    assert any("missing" in words for words in data.layout.assumed)
    assert Dataset(path, missing=[word]).to_polars()["name"].null_count() == 1
    assert Dataset(path, missing=[]).schema["age"].dtype == ("float64" if word == "NaN" else "string")


def test_a_dtype_is_judged_by_rows_all_over_the_file(tmp_path):
    lines = [f"{i},{'x' * 40}" for i in range(40_000)]
    for i in range(30_000, 40_000):
        lines[i] = f"{i}.5,{'x' * 40}"
    data = Dataset(file_of(tmp_path, "a,b\n" + "\n".join(lines) + "\n"))
    assert data.schema["a"].dtype == "float64"
    assert data.to_polars().height == 40_000


def test_a_headerless_file_read_with_a_header_is_noticed(tmp_path):
    path = file_of(tmp_path, "1,68fd1e64,3\n0,80e26c9b,4\n0,fb936136,2\n")
    with pytest.warns(UserWarning, match=r"first line looks like the others.*header=False"):
        Dataset(path, header=True)
    assert Dataset(path).to_polars().height == 3


def test_names_that_the_file_has_too_are_its_header(tmp_path):
    path = file_of(tmp_path, "user,click\nann,1\nbob,0\n")
    assert Dataset(path, names=["user", "click"]).to_polars().rows() == [("ann", 1), ("bob", 0)]
    typed = Dataset(path, names=["user", "click"], dtypes={"user": "string", "click": "int8"})
    assert typed.to_polars().rows() == [("ann", 1), ("bob", 0)]


def test_a_misspelt_dtype_column_is_an_error(tmp_path):
    path = file_of(tmp_path, "user,click\nann,1\n")
    with pytest.raises(ColumnNotFoundError, match=r"'clik' is not in .*did you mean 'click'"):
        Dataset(path, dtypes={"clik": "int8"})
    with pytest.raises(ColumnNotFoundError, match="did you mean 'click'"):
        Dataset(path, names=["user", "click"], dtypes={"user": "string", "click": "int8", "clik": "int8"})


def test_numbered_columns_are_names(tmp_path):
    frame = pl.DataFrame({"0": [5, 6], "1": [7, 8]})
    frame.write_csv(tmp_path / "a.csv")
    assert Dataset(tmp_path / "a.csv").to_polars().equals(frame)


@pytest.mark.parametrize("names", [None, ["user", "item", "rating", "time"]])
@pytest.mark.parametrize("separator", [None, "::"])
def test_two_colons_between_fields(tmp_path, names, separator):
    path = file_of(tmp_path, "1::1193::5::978300760\n1::661::3::978302109\n", "ratings.dat")
    data = Dataset(path, names=names, separator=separator)
    assert data.to_polars().rows() == [(1, 1193, 5, 978300760), (1, 661, 3, 978302109)]
    assert data.schema.names == (names or ["column_1", "column_2", "column_3", "column_4"])
    assert data.layout.file_separator == "::"
    assert ("separator '::'" in data.layout.assumed) == (separator is None)


@pytest.mark.parametrize("comma", ["every", "some"])
@pytest.mark.parametrize("separator", ["::", "|"])
def test_commas_in_titles_are_no_separators(tmp_path, separator, comma):
    titles = [f"Film, The {i}" if comma == "every" or i % 4 == 0 else f"Film {i}" for i in range(40)]
    rows = [(i, title, i % 2, 0, 1, i % 3, "Comedy") for i, title in enumerate(titles)]
    path = file_of(tmp_path, "".join(separator.join(map(str, row)) + "\n" for row in rows), "items.dat")
    data = Dataset(path)
    assert data.layout.file_separator == separator
    assert data.to_polars().rows() == rows


@pytest.mark.parametrize("other", [",", "\t", "|"])
def test_a_told_separator_that_cuts_nothing_is_said(tmp_path, other):
    path = file_of(tmp_path, "".join(other.join(row) + "\n" for row in (("user", "click"), ("a", "1"), ("b", "0"))))
    with pytest.warns(UserWarning, match=r"clicks\.csv: with separator ';' a line is one field, and 2 fields with"):
        assert len(Dataset(path, separator=";").schema.names) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Dataset(file_of(tmp_path, "said\nwell, yes\nno\n"), separator=";")  # a comma at times


def test_lists_of_one_length_are_no_columns(tmp_path):
    rows = [(i, "|".join(str(i + j) for j in range(9))) for i in range(40)]
    path = file_of(tmp_path, "".join(f"{user},{items}\n" for user, items in rows))
    assert Dataset(path).to_polars().rows() == rows


def test_long_separators_as_they_are_told(tmp_path):
    text = 'id<|>title<|>year\n1<|>5" pipe<|>1995\n2<|>a|b, c<|>1996\n'
    data = Dataset(file_of(tmp_path, text, "items.txt"), separator="<|>")
    assert data.to_polars().rows() == [(1, '5" pipe', 1995), (2, "a|b, c", 1996)]
    quoted = Dataset(file_of(tmp_path, 'id::title\n1::"a::b"\n2::c\n'), separator="::", quote='"')
    assert quoted.to_polars().rows() == [(1, "a::b"), (2, "c")]
    colons = Dataset(file_of(tmp_path, "id,type\n1,std::vector\n2,std::map\n"))
    assert colons.to_polars().rows() == [(1, "std::vector"), (2, "std::map")]


def test_errors_name_the_separator_and_the_file_that_were_given(tmp_path):
    path = file_of(tmp_path, "1::2::3\n4::5\n6::7::8\n", "ratings.dat")
    with pytest.raises(DataError, match=r"ratings\.dat, line 2: too few fields, 3 expected"):
        Dataset(path, separator="::").to_polars()
    with pytest.raises(DataError, match=r"holds the character '\\x1f'"):
        Dataset(file_of(tmp_path, "1::\x1f\n"), separator="::")
    with pytest.raises(ParameterError, match="without quotes and line ends"):
        Dataset(path, separator='"::')


def test_a_header_alone_has_no_rows(tmp_path):
    data = Dataset(file_of(tmp_path, "user,click\n"))
    assert (data.schema.names, data.num_rows) == (["user", "click"], 0)


@pytest.mark.parametrize("separator", [" , ", ", ", "; ", " | "])
@pytest.mark.parametrize("quoted", [True, False])
def test_blanks_beside_separators_are_no_values(tmp_path, separator, quoted):
    name = f'"a{separator}b"' if quoted else "ann"
    lines = [separator.join(("user", "age", "price")), *(separator.join((name, str(i), "0.5")) for i in range(4))]
    data = Dataset(file_of(tmp_path, "\n".join(lines) + "\n"))
    assert data.schema.names == ["user", "age", "price"]
    assert data.to_polars().rows() == [(name.strip('"'), i, 0.5) for i in range(4)]


def test_blanks_in_fields_stay(tmp_path):
    text = "film|year\n" + "".join(f"Story {i}, The|19{i}5\n" for i in range(5))
    assert Dataset(file_of(tmp_path, text)).to_polars()["film"].to_list() == [f"Story {i}, The" for i in range(5)]


@pytest.mark.parametrize("name", ["rows.json", "rows.txt", "rows"])
def test_one_array_of_json_is_no_table_of_text(tmp_path, name):
    with pytest.raises(DataError, match=r"holds one array of JSON, which is not read; write it as parquet once: "):
        Dataset(file_of(tmp_path, '[{"a": 1}]', name))


def test_json_lines_by_another_name(tmp_path):
    text = b'{"user": 1, "a": 2}\n' * 3
    with pytest.raises(DataError, match=r"/rows.txt holds JSON lines; give it a name that ends in .jsonl"):
        Dataset(file_of(tmp_path, text, "rows.txt"))
    assert Dataset(file_of(tmp_path, gzip.compress(text), "rows.json.gz")).to_polars().rows() == [(1, 2)] * 3


@pytest.mark.parametrize("name", ["rows.csv", "rows"])
def test_packed_files_that_are_not_read_say_so(tmp_path, name):
    with pytest.raises(DataError, match=f"{name} is packed by 7z; unpack it"):
        Dataset(file_of(tmp_path, b"7z\xbc\xaf" + bytes(100), name))
    with pytest.raises(DataError, match=r"rows.xlsx is a workbook, which is not read; save the sheet"):
        Dataset(file_of(tmp_path, b"PK\x03\x04" + bytes(100), "rows.xlsx"))


def zipped(*names: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, b"a,b\n1,2\n")
    return made.getvalue()


@pytest.mark.parametrize("name", ["rows.zip", "rows.csv.zip", "rows.csv.xz"])
def test_archives_of_one_file_are_unpacked(tmp_path, name):
    packed = (
        lzma.compress(b"a,b\n1,2\n") if name.endswith("xz") else zipped("in/", "in/rows.csv", "__MACOSX/in/rows.csv")
    )
    assert Dataset(file_of(tmp_path, packed, name)).to_polars().rows() == [(1, 2)]
    for cut in (5, 20, len(packed) - 8):
        with pytest.raises(DataError, match=rf"{name} cannot be unpacked .* stream is damaged or truncated"):
            Dataset(file_of(tmp_path, packed[:cut], name))


def test_archives_of_several_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"two.zip holds 2 files \(a.csv, b.csv\); unpack it, and name the one"):
        Dataset(file_of(tmp_path, zipped("a.csv", "b.csv"), "two.zip"))
    with pytest.raises(DataError, match=r"none.zip holds 0 files; unpack it"):
        Dataset(file_of(tmp_path, zipped(), "none.zip"))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_its_mark(tmp_path, encoding):
    text = "name,n\n" + "Köln,1\n" * 5
    assert Dataset(file_of(tmp_path, text.encode(encoding))).to_polars().rows() == [("Köln", 1)] * 5


@pytest.mark.parametrize("end", ["\n", "\n\n", "\r\n\r\n\r\n", ""])
@pytest.mark.parametrize("part_size", [4, 1_000])
def test_empty_lines_at_the_end_are_no_rows(tmp_path, end, part_size):
    path = file_of(tmp_path, "a,b\n1,x\n2,y" + end)
    assert Dataset(path, part_size=part_size).to_polars().rows() == [(1, "x"), (2, "y")]
    alone = file_of(tmp_path, "b\nx\n\n", "alone.csv")  # where a row has one field, an empty one has no value
    assert Dataset(alone).num_rows == 2


def test_pairs_of_index_and_value_are_refused_by_name(tmp_path):
    for text in ("1 3:1 7:0.5\n0 2:1\n", "1 0:3:1 1:7:1\n0 0:2:1 1:9:1\n"):
        with pytest.raises(DataError, match=r"rows.txt holds pairs of index and value \(libsvm\), which are not read"):
            Dataset(file_of(tmp_path, text, "rows.txt"))


def test_a_packed_file_by_another_name(tmp_path):
    with pytest.raises(DataError, match=r"is packed by gzip; call it rows.csv.gz"):
        Dataset(file_of(tmp_path, gzip.compress(b"a,b\n1,2\n"), "rows.csv"))
    assert Dataset(file_of(tmp_path, gzip.compress(b"a,b\n1,2\n"), "rows.csv.gz")).to_polars().rows() == [(1, 2)]


@pytest.mark.parametrize("count", [1, 3])
def test_comments_before_a_table_name_the_cure(tmp_path, count):
    path = file_of(tmp_path, "# exported, by hand\n" * count + "user;age\n1;30\n2;40\n")
    with pytest.raises(DataError, match=rf"comment.* \('# exported, by hand'\).*: tail -n \+{count + 1} "):
        Dataset(path)


@pytest.mark.parametrize("text", ["#user,age\n1,30\n2,40\n", "#1,30\n#2,40\n"])
def test_values_that_begin_as_comments_do(tmp_path, text):
    assert Dataset(file_of(tmp_path, text)).num_rows == 2


def test_errors_of_a_copy_name_the_file(tmp_path):
    """What is unpacked, decoded or cut by a long separator is read from a copy that nobody has heard of."""
    files = [
        file_of(tmp_path, gzip.compress(b"a,b\n1,2\n"), "rows.csv.gz"),
        file_of(tmp_path, "a,b\n1,2\n".encode("utf-16"), "rows.csv"),
        file_of(tmp_path, "a::b\n1::2\n", "rows.dat"),
    ]
    for file in files:
        for wrong in ({"dtypes": {"c": "int64"}}, {"schema": Schema([ColumnSchema("c", "int64")])}):
            with pytest.raises(ColumnNotFoundError, match=rf"column 'c' is not in {file} \(named in"):
                Dataset(file, **wrong)
    for wrong in (lambda data: data.select(["c"]), lambda data: data.with_roles(label=["c"])):
        with pytest.raises(ColumnNotFoundError, match=rf"column 'c' is not in {files[0]};"):
            wrong(Dataset(files[0]))
    with pytest.raises(SchemaError, match="column 'a': unknown dtype 'itn64'; did you mean"):
        Dataset(files[0], dtypes={"a": "itn64"})


def test_many_bytes_that_are_no_utf_8_speak_of_the_encoding(tmp_path):
    """Letters by themselves tell no encoding; that it is another one is certain."""
    path = file_of(tmp_path, "\n".join(["film,year", *(f"à {i},{1950 + i}" for i in range(50))]).encode("cp1252"))
    with pytest.raises(DataError, match=r"line 2: bytes that are no UTF-8 \(49 more.*pass encoding= with its own"):
        Dataset(path).to_polars()
    assert Dataset(path, encoding="cp1252").to_polars()["film"][0] == "à 0"


def test_names_that_come_again_are_said(tmp_path):
    data = Dataset(file_of(tmp_path, "x,y,x\n1,2,3\n4,5,6\n"))
    assert data.schema.names == ["x", "y", "x_duplicated_0"]
    assert "another 'x' as 'x_duplicated_0'" in data.layout.assumed


def test_fields_aligned_by_blanks_are_told_the_cure(tmp_path):
    lines = [f"{i:<6}{'ab'[i % 2]:<5}{i * 1.5:<8}" for i in range(20)]
    path = file_of(tmp_path, "\n".join(["user  shop price   ", *lines]), "rows.txt")
    with pytest.raises(DataError, match=r"its fields are aligned by blanks.*awk '{\$1=\$1}1' .*rows.txt"):
        Dataset(path)
    text = file_of(tmp_path, "note\nso  it is 1\nno  it is 2\nwe  do so 3\n", "notes.txt")
    assert Dataset(text).schema.names == ["note"]
