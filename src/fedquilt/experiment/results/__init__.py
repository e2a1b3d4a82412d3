"""What an experiment's runs say: cells with mean and spread beside published values, and tables of them.

May import `design` and the modules of `experiment` itself. It reads run folders, and imports no code that they name.
"""
