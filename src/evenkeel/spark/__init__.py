"""Everything that talks to Spark, through the DataFrame API alone, so that it also runs over Spark Connect."""
