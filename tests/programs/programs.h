// Whole programs, written as users write them, with the public headers alone. docs/programs.md counts the lines between
// the marks "program begins" and "program ends", without blank lines and comments.
#pragma once

#include <filesystem>

namespace programs {

// Each writes into an empty folder of its own, and throws if a result is wrong.
void image_classifier(const std::filesystem::path& folder);
void fine_tuning(const std::filesystem::path& folder);
void text_model(const std::filesystem::path& folder);
void gan(const std::filesystem::path& folder);
void resumed_ranks(const std::filesystem::path& folder);
void several_heads(const std::filesystem::path& folder);
void own_function(const std::filesystem::path& folder);
void own_optimizer(const std::filesystem::path& folder);
void server(const std::filesystem::path& folder);

}  // namespace programs
