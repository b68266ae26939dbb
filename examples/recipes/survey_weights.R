# Weighted estimates of a release without replicate weights, by R's survey package (Lumley 2010).
#
# For a release of ../population. In Python: release.export("rows.csv"). Then:
# Rscript survey_weights.R rows.csv
# Estimates are right. Standard errors are the sandwich of the synthetic rows alone: they leave out
# the privacy noise; take those of dpiw.analysis, or of replicate weights (../population/survey.R).

suppressPackageStartupMessages(library(survey))

rows <- read.csv(commandArgs(trailingOnly = TRUE)[1], stringsAsFactors = TRUE)

design <- svydesign(ids = ~1, weights = ~weight, data = rows)

groups <- svyby(~age, ~smoker, design, svymean)
spread <- svyvar(~age, design)
fit <- svyglm(hours ~ age + smoker, design, family = quasipoisson())

told <- rbind(
  data.frame(name = paste0("age|smoker=", groups$smoker), estimate = groups$age, error = SE(groups)),
  data.frame(name = "variance(age)", estimate = as.numeric(spread), error = as.numeric(SE(spread))),
  data.frame(name = paste0("hours~", names(coef(fit))), estimate = coef(fit), error = SE(fit))
)
write.csv(told, row.names = FALSE)
