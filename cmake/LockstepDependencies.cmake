# What the library is built from. LockstepConfig.cmake.in finds again what its users need.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(nlohmann_json REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(OneDNN REQUIRED)
find_package(Hwloc REQUIRED)
