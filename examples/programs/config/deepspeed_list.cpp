// SPDX-License-Identifier: Apache-2.0
// Builds the list of all keys of a DeepSpeed configuration. The list has the main keys, and the keys that
// only matter if their section is enabled. Also finds a key by its path, and writes the list as a page of the
// manual.
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/option_flags.hpp"
#include "config/deepspeed_keys.hpp"

namespace programs {
using namespace tessera;
namespace cli {
namespace {

/// Keys of the section `parent` that have no effect here: the feature that they configure is off, or another
/// key refuses it. `names` are separated by spaces.
struct OffKeys {
  std::string_view parent, names;
};
constexpr OffKeys off_keys[] = {
    {"amp", "*"},
    {"torch_autocast", "dtype lower_precision_safe_modules"},
    {"tensor_parallel", "preset_model tp_overlap_comm partition_config"},
    {"tensor_parallel.partition_config", "use_default_specs layer_specs *"},
    {"tensor_parallel.partition_config.layer_specs",
     "patterns partition_type shape partition_dim model_types"},
    {"hybrid_engine",
     "max_out_tokens inference_tp_size release_inference_cache pin_parameters tp_gather_partition_size "
     "enable_cuda_graph"},
    {"expert_parallel",
     "autoep_size expert_tensor_parallel_size preset_model use_grouped_mm disable_triton_grouped_mm "
     "moe_layer_pattern router_pattern expert_pattern score_func score_apply route_norm route_scale top_k "
     "routed_scaling_factor num_expert_groups num_limited_groups load_balance_coeff expert_w1 expert_w2 "
     "expert_w3 num_experts_attr top_k_attr has_shared_experts shared_experts_pattern"},
    {"autotuning",
     "results_dir exps_dir overwrite metric start_profile_step end_profile_step fast max_train_batch_size "
     "mp_size num_tuning_micro_batch_sizes tuner_type tuner_early_stopping tuner_num_trials arg_mappings"},
    {"autotuning.arg_mappings", "*"},
    {"sparse_attention",
     "mode block different_layout_per_head num_local_blocks num_global_blocks attention "
     "horizontal_global_attention num_different_global_patterns num_random_blocks local_window_blocks "
     "global_block_indices global_block_end_indices num_sliding_window_blocks"},
    {"data_efficiency", "seed data_routing data_sampling"},
    {"data_efficiency.data_routing", "enabled random_ltd"},
    {"data_efficiency.data_routing.random_ltd",
     "enabled total_layer_num random_ltd_layer_num random_ltd_layer_id model_mask_name model_type "
     "hidden_state_order random_ltd_schedule"},
    {"data_efficiency.data_routing.random_ltd.random_ltd_schedule",
     "min_value max_value schedule_type schedule_config"},
    {"data_efficiency.data_routing.random_ltd.random_ltd_schedule.schedule_config",
     "require_steps seq_per_step"},
    {"data_efficiency.data_sampling", "enabled num_epochs num_workers curriculum_learning"},
    {"data_efficiency.data_sampling.curriculum_learning", "enabled data_cluster_path curriculum_metrics"},
    {"data_efficiency.data_sampling.curriculum_learning.curriculum_metrics", "*"},
    {"data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*",
     "index_to_sample_path index_to_metric_path difficulty_type clustering_type min_difficulty "
     "max_difficulty schedule_type schedule_config"},
    {"data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.schedule_config",
     "total_curriculum_step difficulty_step root_degree difficulty max_step"},
    {"curriculum_learning", "curriculum_type min_difficulty max_difficulty schedule_type schedule_config"},
    {"curriculum_learning.schedule_config",
     "total_curriculum_step difficulty_step root_degree difficulty max_step"},
    {"comet", "samples_log_interval project workspace api_key experiment_name experiment_key online mode"},
    {"elasticity",
     "max_train_batch_size micro_batch_sizes min_gpus max_gpus min_time prefer_large_batch version "
     "ignore_non_elastic_batch_info num_gpus_per_node model_parallel_size"},
    {"compression_training.layer_reduction",
     "keep_number_layer module_name_prefix teacher_layer other_module_name"},
    {"compression_training.weight_quantization.shared_parameters",
     "quantizer_kernel schedule_offset quantize_groups quantize_verbose quantization_type rounding "
     "quantize_weight_in_forward fp16_mixed_quantize"},
    {"compression_training.weight_quantization.shared_parameters.fp16_mixed_quantize",
     "enabled quantize_change_ratio"},
    {"compression_training.weight_quantization", "different_groups"},
    {"compression_training.weight_quantization.different_groups", "*"},
    {"compression_training.weight_quantization.different_groups.*", "params modules"},
    {"compression_training.weight_quantization.different_groups.*.params",
     "start_bits target_bits quantization_period"},
    {"compression_training.activation_quantization.shared_parameters",
     "quantization_type range_calibration schedule_offset"},
    {"compression_training.activation_quantization", "different_groups"},
    {"compression_training.activation_quantization.different_groups", "*"},
    {"compression_training.activation_quantization.different_groups.*", "params modules"},
    {"compression_training.activation_quantization.different_groups.*.params", "bits"},
    {"compression_training.sparse_pruning.shared_parameters",
     "schedule_offset schedule_offset_end schedule_offset_stride method block_pattern dense_ratio "
     "excluded_modules"},
    {"compression_training.sparse_pruning", "different_groups"},
    {"compression_training.sparse_pruning.different_groups", "*"},
    {"compression_training.sparse_pruning.different_groups.*", "params modules"},
    {"compression_training.sparse_pruning.different_groups.*.params", "dense_ratio"},
    {"compression_training.row_pruning.shared_parameters", "schedule_offset method"},
    {"compression_training.row_pruning", "different_groups"},
    {"compression_training.row_pruning.different_groups", "*"},
    {"compression_training.row_pruning.different_groups.*", "params modules related_modules"},
    {"compression_training.row_pruning.different_groups.*.params", "dense_ratio"},
    {"compression_training.head_pruning.shared_parameters", "schedule_offset method num_heads"},
    {"compression_training.head_pruning", "different_groups"},
    {"compression_training.head_pruning.different_groups", "*"},
    {"compression_training.head_pruning.different_groups.*", "params modules related_modules"},
    {"compression_training.head_pruning.different_groups.*.params", "dense_ratio"},
    {"compression_training.channel_pruning.shared_parameters", "schedule_offset method"},
    {"compression_training.channel_pruning", "different_groups"},
    {"compression_training.channel_pruning.different_groups", "*"},
    {"compression_training.channel_pruning.different_groups.*", "params modules related_modules"},
    {"compression_training.channel_pruning.different_groups.*.params", "dense_ratio"},
    {"eigenvalue", "verbose max_iter tol stability gas_boundary_resolution layer_name layer_num"},
    {"progressive_layer_drop", "theta gamma"},
    {"nebula",
     "persistent_storage_path persistent_time_interval num_of_version_in_retention enable_nebula_load "
     "load_path"},
};

std::string_view top_of(std::string_view path) { return path.substr(0, path.find('.')); }

/// Returns whether the path of a key in a file matches the path `key` of the list. A * in `key` matches any
/// name.
bool matches(std::string_view key, std::string_view path) {
  while (true) {
    std::size_t const end = key.find('.'), path_end = path.find('.');
    if (key.substr(0, end) != "*" && key.substr(0, end) != path.substr(0, path_end)) return false;
    if ((end == key.npos) != (path_end == path.npos)) return false;
    if (end == key.npos) return true;
    key.remove_prefix(end + 1);
    path.remove_prefix(path_end + 1);
  }
}

std::vector<DeepSpeedKey> all_keys() {
  static std::vector<std::string> paths;  // owns the text of the added keys, whose paths are views
  for (OffKeys const& off : off_keys)
    for (std::string_view rest = off.names; !rest.empty();) {
      std::size_t const end = std::min(rest.find(' '), rest.size());
      paths.push_back(std::string(off.parent) + "." + std::string(rest.substr(0, end)));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  auto const keys = deepspeed_main_keys();
  std::vector<DeepSpeedKey> all(keys.begin(), keys.end());
  for (std::string const& path : paths)
    all.push_back({path, "", KeyUse::none,
                   path.starts_with("sparse_attention.") ? "its section is refused" : "its section is off"});
  auto const place = [&](DeepSpeedKey const& key) {
    return std::find_if(keys.begin(), keys.end(),
                        [&](DeepSpeedKey const& first) { return top_of(first.path) == top_of(key.path); });
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](auto const& one, auto const& other) { return place(one) < place(other); });
  return all;
}

}  // namespace

std::span<DeepSpeedKey const> deepspeed_keys() {
  static std::vector<DeepSpeedKey> const all = all_keys();
  return all;
}

DeepSpeedKey const* find_deepspeed_key(std::string_view path) {
  DeepSpeedKey const* any = nullptr;  // the match of a key with a *; an exact match takes precedence
  for (DeepSpeedKey const& key : deepspeed_keys()) {
    if (key.path == path) return &key;
    if (any == nullptr && matches(key.path, path)) any = &key;
  }
  return any;
}

Option const* option_of(std::string_view path) {
  auto const found = std::ranges::find(option_table, path, &Option::deepspeed);
  return path.empty() || found == std::end(option_table) ? nullptr : &*found;
}

std::string deepspeed_keys_page() {
  constexpr std::string_view uses[] = {"done", "mapped", "no effect", "refused", "section"};
  std::string page =
      "# DeepSpeed keys: look up the effect of a key\n\n"
      "`train`, `compare` and `plan` read the configuration of a DeepSpeed program, see [run from a "
      "file](how-to/run-from-a-file.md):\n\n"
      "```sh\n"
      "build/cpu/bin/train --config examples/deepspeed/zero2_fp16.json --ranks 2 --batch 2 --steps 20\n"
      "```\n\n"
      "This page lists every documented key of DeepSpeed 0.19. `train --deepspeed-keys` prints it. A `*` "
      "matches any name.\n\n"
      "| effect | meaning |\n|---|---|\n"
      "| done | the key has the same effect as in DeepSpeed |\n"
      "| mapped | another setting serves the purpose; the note names it |\n"
      "| no effect | the key changes nothing. The program prints the note as the reason, unless the key's "
      "section is off |\n"
      "| refused | any value except the default is an error; the note says why |\n"
      "| section | an object that contains keys |\n\n"
      "| key | default | effect | note |\n|---|---|---|---|\n";
  for (DeepSpeedKey const& key : deepspeed_keys()) {
    if (key.use == KeyUse::section && key.text.empty()) continue;
    page.append("| `").append(key.path).append("` | ");
    if (!key.standard.empty()) page.append("`").append(key.standard).append("` ");
    page.append("| ").append(uses[static_cast<std::size_t>(key.use)]).append(" | ");
    if (Option const* const option = option_of(key.path)) page.append("`" + flag_of(*option) + "`");
    page.append(key.text).append(" |\n");
  }
  return page;
}

}  // namespace cli
}  // namespace programs
