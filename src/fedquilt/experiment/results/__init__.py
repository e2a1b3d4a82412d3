"""What an experiment's runs say: cells with mean and spread beside published values, and tables of them."""
