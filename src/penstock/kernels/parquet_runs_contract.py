"""What finds the runs of parquet pages on the host and what decodes them on a device agree on.

The bytes of column chunks lie one behind the other in one buffer. A *run* is a stretch of one page's values: plain
numbers, dictionary codes packed bit by bit, or one code that is repeated. All that follows from a run has been checked
on the host but for the codes themselves, which only the device reads.

A run says at which row of the chunk it begins, how many values it has (less than none: so many times the code `PLACE`),
at which byte of the buffer it begins, and in which page it lies. A page says to which column it belongs, at which byte
its dictionary begins (-1: its values are plain), how many entries that has, and how many bits a code takes. A column
says where its values go, in words of 32 bits, how many words a value takes, and which values are suspicious.
"""

from __future__ import annotations

ROW, COUNT, PLACE, PAGE = range(4)
RUN_FIELDS = 4
COLUMN, DICTIONARY, ENTRIES, WIDTH = range(4)
PAGE_FIELDS = 4
BASE, WORDS, CHECK, LOW, HIGH = range(5)
COLUMN_FIELDS = 5

# What of a column the device looks at: nothing, integers from LOW to HIGH, or that numbers are not NaN.
UNCHECKED, IN_RANGE, NOT_NAN = range(3)
LONGEST_RUN = 2048  # values; longer ones are cut, so that every program of a device has about as much to do
SPARE_BYTES = 64  # behind the last page, so that two words can be read at its end
