"""What all tests need."""

import signal

# Whoever starts the tests in the background may have them ignore Ctrl-C, and the programs they start as well.
signal.signal(signal.SIGINT, signal.default_int_handler)
