"""The benchmarks that come with the package, one TOML file each."""
