# Short names for the commands that CONTRIBUTING.md explains.

# Lists the recipes.
default:
    @just --list

# Everything that has to hold; changes nothing.
verify: test

# All checks and tests, with servers of its own.
test *args:
    cargo xtask test -- {{ args }}

# The same without servers.
quick *args:
    cargo xtask test --quick -- {{ args }}

# Format, house rules, clippy, documentation.
tidy:
    cargo xtask tidy

# Formats, and applies what clippy knows how to mend.
fix:
    cargo xtask fix

# Measures the storage drivers beside the bare clients.
bench *args:
    cargo xtask bench {{ args }}

# Simulates elections, for as long as it is told.
simulate *args:
    cargo xtask simulate {{ args }}

# Starts three nodes on this machine that share a Cassandra server. Ctrl-C stops everything.
cluster *args:
    @cargo xtask cluster {{ args }}

# Starts the test servers and prints the variables by which tests find them.
up which="all":
    @cargo xtask up {{ which }}

# Stops them.
down:
    @cargo xtask down
