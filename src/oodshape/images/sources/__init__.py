"""Where images come from: folders, lists, archives, remote storage, memory."""
