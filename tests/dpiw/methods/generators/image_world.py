"""Images of bars, and a small GAN that is calibrated for them."""

import numpy as np

from dpiw.data.schema.schema import Column, ColumnKind, ColumnRole, PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable
from dpiw.methods.generators.gan.dpgan import DPCGAN
from dpiw.methods.generators.registry import make_generator
from tests.dpiw.methods.generators.neural_world import UNIT

SIDE = 8
PIXELS = tuple(
    Column(name=f"p{place}", kind=ColumnKind.CONTINUOUS, lower=0.0, upper=1.0)
    for place in range(SIDE**2)
)
STANDS = Column(name="stands", kind=ColumnKind.BOOLEAN, role=ColumnRole.TARGET)
SCHEMA = PublicSchema(name="bars", columns=(*PIXELS, STANDS))
PLAIN = PublicSchema(name="bars", columns=PIXELS)


def table(rows, seed=0, schema=SCHEMA):
    """Dark images with a white bar in the middle, lying or standing."""
    rng = np.random.default_rng(seed)
    images, stands = 0.3 * rng.random((rows, SIDE, SIDE)), rng.random(rows) < 0.5
    images[~stands, 3:5] += 0.6
    images[stands, :, 3:5] += 0.6
    columns = {
        c.name: pixel for c, pixel in zip(PIXELS, images.reshape(rows, SIDE**2).T, strict=True)
    }
    columns |= {"stands": stands.astype(np.int32)} if schema is SCHEMA else {}
    return PrivateTable(schema=schema, scaled=ScaledTable(columns, rows))


def ready(kind=DPCGAN, *, schema=SCHEMA, rho=1.0, nominal_rows=40, **settings):
    small = {
        "steps": 8, "lot": 10, "batch": 5, "latent": 3, "image": [SIDE, SIDE],
        "generator": [4, 3], "discriminator": [2, 3],
    } | settings  # fmt: skip
    return make_generator(kind.method, small, pure=False).calibrate(
        rho=rho, schema=schema, unit=UNIT, nominal_rows=nominal_rows
    )
