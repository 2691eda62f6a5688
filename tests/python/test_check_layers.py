"""The check of include directions finds what it should."""
from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_layers  # noqa: E402


class CheckLayers(unittest.TestCase):
    def faults(self, files: dict[str, str]) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check_layers.check(Path(folder))

    def test_the_program_itself(self) -> None:
        self.assertEqual(check_layers.check(ROOT), [])

    def test_wrong_direction(self) -> None:
        faults = self.faults({"src/plan/a.h": '#pragma once\n#include "io/b.h"\n',
                              "src/io/b.h": "", "src/io/c.cpp": '#include "io/b.h"\n',
                              "src/app/d.cpp": '#include "plan/a.h"\n'})
        self.assertEqual(faults, ["src/plan/a.h:2: plan may not include io/b.h"])

    def test_folders_of_plan_are_layers(self) -> None:
        faults = self.faults({"src/plan/cost/a.h": '#include "plan/pack/b.h"\n#include "plan/c.h"\n',
                              "src/plan/pack/b.h": '#include "plan/cost/a.h"\n', "src/plan/c.h": "",
                              "src/plan/new/d.h": '#include "plan/c.h"\n'})
        self.assertEqual(faults, ["src/plan/cost/a.h:1: plan/cost may not include plan/pack/b.h",
                                  "src/plan/new/d.h:1: the folder plan/new has no place in ROOM_LAYERS",
                                  "src/plan/cost: includes itself by way of plan/pack",
                                  "src/plan/pack: includes itself by way of plan/cost"])

    def test_folders_of_train_are_layers_but_not_its_own_files(self) -> None:
        faults = self.faults({"src/train/a.h": '#include "train/records/b.h"\n',
                              "src/train/records/b.h": '#include "train/checkpoint/c.h"\n',
                              "src/train/checkpoint/c.h": '#include "train/d.h"\n'
                                                          '#include "train/records/b.h"\n',
                              "src/train/d.h": "",
                              "src/train/new/d.h": '#include "train/a.h"\n'})
        self.assertEqual(faults,
                         ["src/train/checkpoint/c.h:2: train/checkpoint may not include "
                          "train/records/b.h",
                          "src/train/new/d.h:1: the folder train/new has no place in ROOM_LAYERS",
                          "src/train/checkpoint: includes itself by way of train/records",
                          "src/train/records: includes itself by way of train/checkpoint"])

    def test_circles_through_files_of_the_room(self) -> None:
        faults = self.faults({"src/backend/a.cpp": '#include "backend/cpu/b.h"\n',
                              "src/backend/cpu/b.h": '#include "backend/c.h"\n',
                              "src/backend/c.h": '#include "backend/d.h"\n', "src/backend/d.h": ""})
        self.assertEqual(faults, [])
        faults = self.faults({"src/backend/cpu/b.h": '#include "backend/c.h"\n',
                              "src/backend/c.cpp": '#include "backend/d.h"\n', "src/backend/c.h": "",
                              "src/backend/d.h": '#include "backend/cpu/b.h"\n'})
        self.assertEqual(faults, ["src/backend/cpu: includes itself by way of backend/c, backend/d"])

    def test_third_parties_stay_in_their_place(self) -> None:
        faults = self.faults({"src/train/a.cpp": "#include <mpi.h>\n#include <vector>\n",
                              "src/config/b.cpp": "#include <boost/program_options.hpp>\n",
                              "src/config/command_line.cpp": "#include <boost/any.hpp>\n",
                              "src/app/c.cpp": "#include <yaml-cpp/yaml.h>\n#include <hdf5.h>\n",
                              "src/backend/cpu/d.cpp": "#include <oneapi/dnnl/dnnl.h>\n",
                              "src/model/e.cpp": "#include <cblas.h>\n"})
        self.assertEqual([fault.split(": ")[0] for fault in faults],
                         ["src/app/c.cpp:1", "src/app/c.cpp:2", "src/config/b.cpp:1",
                          "src/model/e.cpp:1", "src/train/a.cpp:1"])

    def test_kernels_are_a_leaf(self) -> None:
        faults = self.faults({"kernels/k.cu": '#include "base/b.h"\n#include "kernels/k.h"\n',
                              "kernels/k.h": "", "src/base/b.h": "",
                              "src/backend/cuda/c.cpp": '#include "kernels/k.h"\n',
                              "src/model/m.cpp": '#include "kernels/k.h"\n'})
        self.assertEqual([fault.split(": ")[0] for fault in faults],
                         ["src/model/m.cpp:1", "kernels/k.cu:1"])

    def test_numbers_of_kernels_may_be_counted(self) -> None:
        faults = self.faults({"kernels/sizes.h": '#include <cstdint>\n#include <cuda_runtime_api.h>\n',
                              "kernels/lora/lora_sizes.h": '#include "kernels/sizes.h"\n',
                              "src/plan/memory/m.cpp": '#include "kernels/lora/lora_sizes.h"\n',
                              "src/backend/s.h": '#include "kernels/sizes.h"\n',
                              "src/plan/p.cpp": '#include "kernels/sizes.h"\n'})
        self.assertEqual([fault.split(": ")[0] for fault in faults],
                         ["src/plan/p.cpp:1", "kernels/sizes.h:2"])

    def test_unknown_folder_and_header(self) -> None:
        faults = self.faults({"src/util/a.h": "", "src/base/b.cpp": '#include "base/none.h"\n'})
        self.assertEqual(len(faults), 2)


if __name__ == "__main__":
    unittest.main()
