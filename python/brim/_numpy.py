"""numpy, for the parts that need it; importing brim does not."""

from __future__ import annotations

try:
    import numpy as numpy
except ModuleNotFoundError as error:
    if error.name != "numpy":
        raise
    raise ModuleNotFoundError(
        "functions, datasets and looking at samples need numpy: pip install brim[numpy]",
        name="numpy",
    ) from None
