"""Methods that perturb the network's input or features before they score."""
