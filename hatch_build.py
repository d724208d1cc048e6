"""Compiles the native library into a wheel, if there is a C compiler; without one the wheel is for all platforms."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/saccade/export/native")


class NativeBuildHook(BuildHookInterface[Any]):
    """Adds the library to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return  # a checkout compiles it once, into the cache
        spec = importlib.util.spec_from_file_location("saccade_build", Path(self.root) / FOLDER / "build.py")
        assert spec is not None
        assert spec.loader is not None
        build = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(build)
        self.place = tempfile.TemporaryDirectory(prefix="saccade-wheel-")
        library = Path(self.place.name) / build.LIBRARY
        try:
            build.build(library)
        except build.CannotBuild as error:
            self.app.display_warning(f"the native library is left out: {error}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = build.name_wheel(library)
        build_data["force_include"][str(library)] = f"saccade/export/native/{build.LIBRARY}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        del version, build_data, artifact_path
        if hasattr(self, "place"):
            self.place.cleanup()
