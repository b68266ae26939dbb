"""A release's metadata in the forms that data catalogues take."""

CATALOGUES = {
    "croissant": "croissant.json",
    "dcat": "dcat.jsonld",
    "ddi": "ddi.xml",
    "prov": "prov.jsonld",
    "registry": "registry.yaml",
    "sp800-226": "sp800-226.html",
}
"""Name of each form, and of its file."""
