#include "apps/lockstep/resume.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <type_traits>

#include "apps/lockstep/options/option_row.h"
#include "apps/lockstep/ranks.h"

namespace lockstep::app {
namespace {

using Value = std::optional<Recipe::Value>;

// Returns the command-line option for an entry of the recipe.
std::string as_option(const std::string& name, const Value& value) {
  if (name == "gradients" && !value) return "--gradients f32";
  const OptionRow* row = find_option_of_entry(name);
  if (!value && name == "cuda_algorithms") return "no LOCKSTEP_CUDA_ALGORITHMS";
  if (!value) return fmt::format("no {}", row ? row->name : name);
  const std::string* word = value->as<std::string>();
  const std::string text = word ? *word : value->json();
  if (name == "cuda_algorithms") return "LOCKSTEP_CUDA_ALGORITHMS=" + text;
  if (name == "schema") return fmt::format("columns, classes, and normalization {:.8}…", text);
  if (name == "data") return fmt::format("training data {:.8}… (--data)", text);
  if (name == "init_from") return fmt::format("initial weights {:.8}… (--init-from)", text);
  if (name == "examples") return fmt::format("{} training examples (--data, --limit-train)", text);
  if (name == "scheduled_steps") return fmt::format("a schedule of {} steps (--epochs, --max-steps)", text);
  if (!row) return fmt::format("{} {}", name, text);
  const std::string& option = row->name;
  if (!row->is_flag()) return fmt::format("{} {}", option, text);
  const bool given = (*value == true) != option.starts_with("--no-");
  return (given ? "" : "no ") + option;
}

// Fills in settings from the checkpoint's recipe.
void take_settings(TrainOptions& o, const Recipe& recipe) {
  // Returns 0 if the recipe lacks the number. The comparison of recipes reports any other mismatch.
  auto saved = [&](const char* name) {
    const Recipe::Value* found = recipe.find(name);
    const std::uint64_t* number = found ? found->as<std::uint64_t>() : nullptr;
    return number && *number <= 65536 ? static_cast<int>(*number) : 0;
  };
  o.checkpoint_shards = saved("shards");
  if (o.trainer.split.shards == 0) o.trainer.split.shards = o.checkpoint_shards;
  if (o.threads_per_shard == 0) o.threads_per_shard = saved("threads_per_shard");
  const Recipe::Value* weights = recipe.find("init_from");
  if (const std::string* hash = weights ? weights->as<std::string>() : nullptr) o.start_weights = *hash;
  // Recipes of older versions have settings without an effect. Equal recipes let their checkpoints resume.
  const auto take = [&](const char* name, auto& setting) {
    const Recipe::Value* found = recipe.find(name);
    if (const auto* value = found ? found->as<std::decay_t<decltype(setting)>>() : nullptr) setting = *value;
  };
  if (!o.has_momentum()) take("momentum", o.momentum);
  if (!o.has_convolutions()) take("direct_conv", o.direct_conv);
  if (!o.has_batch_norm()) take("sync_bn", o.sync_bn);
}

bool is_same_folder(const std::string& a, const std::string& b) {
  const auto whole = [](const std::string& path) {
    const auto plain = std::filesystem::weakly_canonical(std::filesystem::absolute(path));
    return plain.has_filename() ? plain : plain.parent_path();
  };
  return !a.empty() && !b.empty() && whole(a) == whole(b);
}

// Returns rank 0's choice; nothing if the run begins anew.
std::optional<CheckpointContents> chosen_checkpoint(const TrainOptions& o) {
  const bool open = o.resume == "auto" || is_same_folder(o.resume, o.save);
  const bool again = !o.save.empty() && restarted();
  if (open || again) {
    // A restarted job continues from its own checkpoint, even if it was started with --resume of another folder.
    if (auto found = find_checkpoint(o.save)) return found;
    if (open || o.resume.empty()) return std::nullopt;
  }
  if (!o.resume.empty()) {
    if (!std::filesystem::is_directory(o.resume)) {
      throw UsageError(fmt::format("--resume: Directory does not exist: {}", o.resume));
    }
    return read_checkpoint(o.resume);
  }
  if (o.save.empty()) return std::nullopt;
  // At the first start, a checkpoint in the folder belongs to another run, which this run must not overwrite.
  const auto latest = find_latest_checkpoint(o.save).checkpoint;
  if (!latest) return std::nullopt;
  throw UsageError(
      fmt::format("--save {0}: holds step {1} of an earlier run; --resume {0} continues it, or name another folder",
                  o.save, latest->step));
}

// Returns rank 0's text on all ranks.
std::string broadcast(ProcessGroup& group, std::string text) {
  const CollectiveOptions what{.label = "checkpoint to resume from", .wait = true};
  auto size = static_cast<std::int64_t>(text.size());
  group.broadcast({&size, 1, DType::i64}, 0, what);
  text.resize(static_cast<std::size_t>(size));
  group.broadcast({text.data(), text.size(), DType::u8}, 0, what);
  return text;
}

}  // namespace

Start choose_start(TrainOptions& o, ProcessGroup& group) {
  if (o.resume == "auto" && o.save.empty()) throw UsageError("--resume auto: only with --save");
  if (!o.resume.empty() && o.resume != "auto" && !o.init_from.empty()) {
    throw UsageError("--init-from excludes --resume, except --resume auto");
  }
  Start start;
  // What rank 0 sends: the kind of the message, and its text: a checkpoint, its recipe, or why there is none.
  std::string kind = "begins", path, text;
  if (group.rank() == 0) {
    try {
      if (auto found = chosen_checkpoint(o)) {
        start.checkpoint = std::move(*found);
        kind = "resumes";
        path = start.checkpoint.path.string();
        text = recipe_of(start.checkpoint).json();
      }
    } catch (const UsageError& error) {
      kind = "usage";
      text = error.what();
    } catch (const std::exception& error) {
      kind = "fails";
      text = error.what();
    }
  }
  for (std::string* part : {&kind, &path, &text}) *part = broadcast(group, *part);
  if (kind == "usage") throw UsageError(text);
  if (kind == "fails") fail("{}", text);
  start.resumes = kind == "resumes";
  o.resume = path;
  if (start.resumes) take_settings(o, Recipe::from_json(text));
  return start;
}

ResumedRun resume(Trainer& trainer, CheckpointContents checkpoint) {
  try {
    return trainer.resume(std::move(checkpoint));
  } catch (const RecipeMismatch& error) {
    std::string saved, mine;
    for (const auto& d : error.differences) {
      // If one recipe lacks the entry, the kind of schedule differs as well and is reported.
      if (d.name.starts_with("schedule") && d.name != "schedule" && !(d.saved && d.mine)) continue;
      // If one recipe lacks the entry, the dtype differs as well and is reported.
      if (d.name.starts_with("loss_scale") && !(d.saved && d.mine)) continue;
      const char* comma = saved.empty() ? "" : ", ";
      saved += comma + as_option(d.name, d.saved);
      mine += comma + as_option(d.name, d.mine);
    }
    fail("{}: the checkpoint was made with {}; this run has {}", error.file.string(), saved, mine);
  }
}

std::string not_compared(const ResumedRun& run) {
  if (run.unrecorded.empty()) return "";
  return fmt::format("; the checkpoint does not record {}: this run's setting is used",
                     fmt::join(run.unrecorded, ", "));
}

}  // namespace lockstep::app
