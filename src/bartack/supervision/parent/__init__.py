"""The parent programs that start processes and end all of them with their hub: zygote, keeper, guardians."""
