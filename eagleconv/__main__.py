"""`python -m eagleconv`."""

from eagleconv.cli.main import main

main()
