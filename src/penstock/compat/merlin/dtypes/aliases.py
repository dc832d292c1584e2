"""The dtypes by name."""

from penstock.compat.merlin.dtypes.base import named
from penstock.compat.missing import module_getattr

uint8 = named("uint8")
uint16 = named("uint16")
uint32 = named("uint32")
uint64 = named("uint64")
int8 = named("int8")
int16 = named("int16")
int32 = named("int32")
int64 = named("int64")
float16 = named("float16")
float32 = named("float32")
float64 = named("float64")
datetime64 = named("datetime64")
datetime64Y = named("datetime64[Y]")
datetime64M = named("datetime64[M]")
datetime64D = named("datetime64[D]")
datetime64h = named("datetime64[h]")
datetime64m = named("datetime64[m]")
datetime64s = named("datetime64[s]")
datetime64ms = named("datetime64[ms]")
datetime64us = named("datetime64[us]")
datetime64ns = named("datetime64[ns]")
string = named("str")
boolean = named("bool")
object_ = named("object")
unknown = named("unknown")

__getattr__ = module_getattr(__name__)
