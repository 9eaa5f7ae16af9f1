"""A computer on disk: /sys, /proc and /dev in a folder."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Computer:
    root: Path

    def write(self, path, text=""):
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def pci(self, address, vendor, device, class_code):
        """A PCI function as the kernel shows it; the device folder is a link, as in a real /sys."""
        bus, sub, interface = (class_code[i : i + 2].upper() for i in (0, 2, 4))
        real = f"sys/devices/pci0000:00/{address}"
        self.write(
            f"{real}/modalias",
            f"pci:v0000{vendor.upper()}d0000{device.upper()}sv000010DEsd000016C1bc{bus}sc{sub}i{interface}\n",
        )
        link = self.root / "sys/bus/pci/devices" / address
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(self.root / real)

    def sign(self, sign):
        """A file (`"/dev/kfd"`), or a PCI function (`"1002:744c 030000"`: vendor, device, class)."""
        if sign.startswith("/"):
            self.write(sign)
        else:
            ids, _, kind = sign.partition(" ")
            self.pci("0000:81:00.0", *ids.split(":"), kind)

    def group(self, folder, **files):
        """A control group's folder: `memory_max=…` writes memory.max."""
        for name, value in files.items():
            self.write(f"{folder}/{name.replace('_', '.')}", f"{value}\n")

    @property
    def path(self):
        return str(self.root)
