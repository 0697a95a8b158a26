#include "lockstep/base/option_error.h"

#include <cctype>
#include <string_view>

namespace lockstep {
namespace {

// Whether `c` can be part of a word or a path. Fields inside longer words and paths are not replaced.
bool is_part(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string_view("_-/.").find(c) != std::string_view::npos;
}

}  // namespace

std::string OptionError::with_names(const std::function<std::string(const std::string& field)>& name_of) const {
  std::string text = what();
  for (const std::string& field : fields_) {
    const std::string quoted = "`" + field + "`", name = name_of(field);
    // If the message quotes the field, only the quoted places are replaced: "categories" may also be a plain word.
    const std::string& word = text.find(quoted) == text.npos ? field : quoted;
    for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at)) {
      const std::size_t begin = at, end = at + word.size();
      at = end;
      if ((begin > 0 && is_part(text[begin - 1])) || (end < text.size() && is_part(text[end]))) continue;
      text.replace(begin, word.size() + (text.compare(end, 3, " = ") == 0 ? 2 : 0), name);
      at = begin + name.size();
    }
  }
  return text;
}

}  // namespace lockstep
