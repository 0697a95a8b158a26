// programs NAME FOLDER: runs one of them.
#include <fmt/core.h>

#include <exception>
#include <functional>
#include <map>
#include <string>

#include "programs.h"

int main(int argc, char** argv) try {
  const std::map<std::string, std::function<void(const std::filesystem::path&)>> all = {
      {"image_classifier", programs::image_classifier},
      {"fine_tuning", programs::fine_tuning},
      {"text_model", programs::text_model},
      {"gan", programs::gan},
      {"resumed_ranks", programs::resumed_ranks},
      {"several_heads", programs::several_heads},
      {"own_function", programs::own_function},
      {"own_optimizer", programs::own_optimizer},
      {"server", programs::server}};
  if (argc != 3 || !all.contains(argv[1])) return 2;
  std::filesystem::remove_all(argv[2]);
  std::filesystem::create_directories(argv[2]);
  all.at(argv[1])(argv[2]);
  fmt::print("{} ran\n", argv[1]);
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
