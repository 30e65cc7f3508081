// SPDX-License-Identifier: Apache-2.0
// Compiles the functions that read and write files of weights, model folders and adapters, for programs that
// link tessera::recipes.
#define TESSERA_RECIPES_LINKED
#include "tessera/io/adapter_definitions.hpp"
#include "tessera/io/file_definitions.hpp"
#include "tessera/io/hash_definitions.hpp"
#include "tessera/io/hub_config_definitions.hpp"
#include "tessera/io/llmc_file_definitions.hpp"
#include "tessera/io/model_folder_definitions.hpp"
#include "tessera/io/model_weights_definitions.hpp"
#include "tessera/io/safetensors_definitions.hpp"
#include "tessera/io/safetensors_header_definitions.hpp"
#include "tessera/io/weight_names_definitions.hpp"
#include "tessera/io/weights_format_definitions.hpp"
