"""Archives in memory, of names with their bytes."""

import io
import tarfile
import zipfile


def of_zip(files, method=zipfile.ZIP_DEFLATED):
    """Return a zip."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return target.getvalue()


def of_tar(files, form=tarfile.GNU_FORMAT, kind=tarfile.REGTYPE):
    """Return a tar that is not compressed."""
    target = io.BytesIO()
    with tarfile.open(
        fileobj=target, mode="w", format=form, errors="surrogatepass"
    ) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.type = len(data), kind
            archive.addfile(info, io.BytesIO(data))
    return target.getvalue()


def of_wheel(name, version):
    """Return a wheel for any Python, with nothing in it."""
    info = f"{name}-{version}.dist-info"
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    return of_zip({f"{info}/{file}": text.encode() for file, text in files.items()})
