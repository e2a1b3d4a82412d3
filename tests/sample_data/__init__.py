"""Writers of small files in the formats that data sets are published in, which many tests share."""
