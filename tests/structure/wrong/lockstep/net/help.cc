const char* help = "Of each rank";
