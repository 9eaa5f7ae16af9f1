"""Wheels in memory."""

import io
import zipfile


def of_wheel(name, version):
    """Return a wheel for any Python, with nothing in it."""
    info = f"{name}-{version}.dist-info"
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for file, text in files.items():
            archive.writestr(f"{info}/{file}", text)
    return target.getvalue()
