"""From images to features and logits.

`opening` turns what a user names (a timm, torchvision or Hugging Face model, one of `zoo/`, a function, a torch.export
archive) into a `classifier`: any network whose logits come from a linear map, read without changing it. `reading` runs
one forward pass, `linear_maps` sees the maps in it, `finding` tells which of them gives the logits; `head` holds that
one and what a network says about a batch. `device` says where it runs. `weights` and `torch_export` read files without
running what is in them.
"""
