"""Steps of bitsandbytes' AdamW8bit on random gradients: its own reference in torch, as it runs where it has no kernels.
usage: make_adamw_8bit.py OUT.safetensors    (needs bitsandbytes; 0.50.2 made the file of the tests)
Tensors start, gradients [steps, n], and after all steps parameters, codes1, codes2 (as numbers), scales1, scales2; the
hyper-parameters are metadata."""
import sys, unittest.mock
import torch
from safetensors.torch import save_file
with unittest.mock.patch.dict(sys.modules, {name: unittest.mock.MagicMock() for name in ("triton", "triton.language", "triton.language.extra")}), \
        unittest.mock.patch("torch.compile", lambda function: function):  # of which the reference uses nothing
    from bitsandbytes.backends.triton.kernels_optim import optimizer_update_8bit_blockwise_pytorch
    from bitsandbytes.functional import create_dynamic_map

COUNT, STEPS, BLOCK = 1000, 6, 256
LR, BETA1, BETA2, EPS, DECAY = 1e-2, 0.9, 0.95, 1e-8, 0.1


def main():
    generator = torch.Generator().manual_seed(19)
    start = torch.randn(COUNT, generator=generator)
    # Of all sizes, some blocks with a lonely large one, below zero too.
    sizes = 10.0 ** (-6 * torch.rand(COUNT, generator=generator))
    gradients = torch.randn(STEPS, COUNT, generator=generator) * sizes
    gradients[:, 300] = -5.0
    gradients[:, 900:] = 0.0
    p, maps = start.clone(), (create_dynamic_map(signed=True), create_dynamic_map(signed=False))
    blocks = -(-COUNT // BLOCK)
    codes = [torch.zeros(COUNT, dtype=torch.uint8) for _ in range(2)]
    scales = [torch.zeros(blocks) for _ in range(2)]
    for step in range(STEPS):
        optimizer_update_8bit_blockwise_pytorch(p, gradients[step], codes[0], codes[1], BETA1, BETA2, 0.0, 0.0, EPS, step + 1, LR, *maps, *scales,
                                                DECAY, 1.0, False, optimizer_name="adam")
    save_file({"start": start, "gradients": gradients.contiguous(), "parameters": p, "codes1": codes[0].float(), "codes2": codes[1].float(),
               "scales1": scales[0], "scales2": scales[1]}, sys.argv[1], metadata={"format": "pt"})
    print(p[:4], scales)


if __name__ == "__main__":
    main()
