"""Parquet codecs: one table for the writer, which takes a codec's name, and for readers, which find it in footers.

>>> codec_named("snappy").in_kernel, codec_in_footer("GZIP").name, codec_in_footer("LZO")
(True, 'gzip', None)
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.errors import ParameterError


@dataclass(frozen=True)
class Codec:
    """One way to compress the pages of a parquet file.

    Args:
        name: what `compression=` takes.
        footer: what the file's footer calls it.
        arrow: the Arrow codec that uncompresses a page for the loader's kernels, or None.
        in_kernel: whether the kernels uncompress (or need not uncompress) a page themselves, without Arrow.
        most_gain: how many times fewer bytes it can make of a page; what promises more is damaged.
    """

    name: str
    footer: str
    arrow: str | None = None
    in_kernel: bool = False
    most_gain: int = 1 << 16

    @property
    def known_to_loader(self) -> bool:
        """Whether the loader reads pages of it itself; other columns come through a frame."""
        return self.in_kernel or self.arrow is not None


PARQUET_CODECS: dict[str, Codec] = {
    codec.name: codec
    for codec in (
        Codec("none", "UNCOMPRESSED", in_kernel=True),
        Codec("snappy", "SNAPPY", in_kernel=True, most_gain=32),
        Codec("zstd", "ZSTD", arrow="zstd"),
        Codec("gzip", "GZIP", arrow="gzip", most_gain=1100),
        Codec("brotli", "BROTLI", arrow="brotli"),
        Codec("lz4", "LZ4"),  # the footer does not tell its two framings apart
    )
}


def codec_named(name: str) -> Codec:
    """The codec that a user names, in any case.

    Raises:
        ParameterError: there is none of that name; the message lists those there are.
    """
    codec = PARQUET_CODECS.get(name.lower()) if isinstance(name, str) else None
    if codec is None:
        raise ParameterError(f"compression must be one of {', '.join(map(repr, PARQUET_CODECS))}, got {name!r}")
    return codec


def codec_in_footer(footer: str) -> Codec | None:
    """The codec that a file's footer names, or None."""
    return next((codec for codec in PARQUET_CODECS.values() if codec.footer == footer), None)
